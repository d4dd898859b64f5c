"""A guarantee for any data: decide before a failure which sensors' windows may be lost.

While nothing fails, every window is predicted as if its worker had failed 1 … H windows ago.
`estimator` has the parameters of an estimator and its results. `state` has the arrays of many
guards, and the words for their axes. `accounts` allow a guarantee only while few earlier ones were
wrong; their theorem assumes nothing about the data. `prediction` computes a window from the other
workers' windows and from all earlier ones. `proposal` learns from the errors which guarantees to
propose. `guards` applies these steps to a window of each guard. `guard` has the class `Guard` of a
single one, which users call. `known` is D1's estimator: a known Gaussian model, from which nothing
is learned. `predictor` puts a user's prediction in the place of the guard's. `learned` has what a
guard learned, with which another one begins.
"""
