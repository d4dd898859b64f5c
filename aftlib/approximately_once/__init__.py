"""D1: a lost worker is estimated from the others by a multivariate Gaussian."""
