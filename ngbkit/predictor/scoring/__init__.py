"""How good predictions are: on networks left out of the fit, against the noise of labels, and with more of them."""
