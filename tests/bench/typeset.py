"""Typesets a paper of two columns with a figure of 88 and one of 180 mm, as PDF and as pictures of its pages.

Claim: LaTeX of `ngbkit.figures.save` compiles as it is. The paper and its pages are in results/paper, which git
ignores. It needs pdfLaTeX and poppler (apt-get install texlive-latex-base poppler-utils).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import ngbkit
from ngbkit import figures

ROOT = Path(__file__).parents[2]
OUT = ROOT / "results" / "paper"
_TEXT = "A text of the paper, as wide as its column, around its figures. " * 6 + "\n\n"
_PAPER = r"""\documentclass[10pt,twocolumn,a4paper]{article}
\usepackage[margin=15mm,columnsep=4mm]{geometry}
\usepackage[T1]{fontenc}
\usepackage{graphicx}
\begin{document}
\title{Two figures}\author{}\date{}\maketitle
%s\input{column.tex}
%s\input{page.tex}
%s\end{document}
"""


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    data = ngbkit.load(ROOT / "notebooks" / "data" / "compilers.nc")
    networks = ["resnet18", "deit3_small_patch16_224", "swin_s3_tiny_224"]
    compilers = ["identity", "torchscript", "inductor", "onnxruntime", "openvino", "tvm"]
    column = figures.throughput(data, workload=networks[0], compiler=compilers)
    figures.save(column, OUT / "column.tex", width=88)
    figures.save(figures.speedup(data, workload=networks, compiler=compilers), OUT / "page.tex", width=180)
    (OUT / "paper.tex").write_text(_PAPER % (2 * _TEXT, 12 * _TEXT, 12 * _TEXT))
    for _ in range(2):
        subprocess.run(["pdflatex", "-halt-on-error", "-interaction=batchmode", "paper.tex"], cwd=OUT, check=True)
    subprocess.run(["pdftoppm", "-r", "110", "-png", "paper.pdf", "page"], cwd=OUT, check=True)
    print(OUT / "paper.pdf")


if __name__ == "__main__":
    main()
