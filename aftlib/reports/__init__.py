"""From notebooks to reports: run by papermill, exported to HTML, gathered in an index."""
