"""What a notebook imports besides its own package.

`parameters` declares a notebook's parameters once, `style` gives all figures one look, `claims` has
a claim with its judge, and `scorecard` shows the verdicts as a table and stores them in the
notebook. `texts` shows values as texts and renders all templates.
"""
