"""The documentation: pages that are generated, the site, and what checks both."""
