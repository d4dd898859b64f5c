"""D3: state shared through a database instead of a shuffle."""
