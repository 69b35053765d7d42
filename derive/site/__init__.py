"""Write derivations as a web site: pages of operations, of the guide, and a catalog."""
