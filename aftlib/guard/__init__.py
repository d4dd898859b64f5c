"""A promise that holds on any data: which sensors' windows could be lost, judged before they are.

While nothing fails, every window is predicted as if its worker had died 1 … H windows ago:
`prediction` says what it would have been, from the others now and from all before; `proposal`
learns from the errors where a guarantee is worth trying; `accounts` allows a guarantee only while
those before it were kept, with a theorem that assumes nothing about the data, and audits the
estimates of real failures; `rounds` takes these steps for one window after another, and `Guard` is
the class to use. `partial` has accounts of its own for windows of which only a part is lost.
`pipeline` puts the guard behind any Spark stream of samples (docs/any_stream.md).
"""

from aftlib.guard.guard import Guard, History, Recovered

__all__ = ["Guard", "History", "Recovered"]
