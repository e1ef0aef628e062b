"""Trials in processes of their own, so that a crash, a hang or a full memory costs one trial.

server_pool     chooses the fork server for a child
servers         the engine's side: starts fork servers, requests children, and determines how a child ended
forkserver      forks children, with the heavy imports already loaded
child           builds or loads one network, compiles it, checks it, and times it on request
layout          moves what each child allocates
channel         carries their messages
settings        environment variables of every child
"""
