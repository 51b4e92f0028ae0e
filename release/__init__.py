"""What is made from the sources for others: the chart's README and plain manifest, and the list of what is inside.

Each module is a command that writes its file: `python -m release.readme`. Tests compare what is committed with what a
command would write. Nothing of the product imports this.
"""
