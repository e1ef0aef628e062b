"""The quality of predictions: on networks left out of the fit, against the noise of labels, and with more of them."""
