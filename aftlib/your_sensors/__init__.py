"""From a file of sensors to a plan with a back-tested promise."""
