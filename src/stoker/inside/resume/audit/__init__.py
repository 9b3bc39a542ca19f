"""audit: is a resume what the run was? A second life answers beside it.

It answers for asking for audits in the process that trains (requests), for the life of an audit (auditor,
auditor_files), and for the comparison of its state with an image (sameness). It imports all other rooms;
none imports it.
"""
