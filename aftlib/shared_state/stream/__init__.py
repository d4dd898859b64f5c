"""D3's streams of tuples: drawn, written as text, read and parsed."""
