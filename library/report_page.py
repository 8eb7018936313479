# The work is done on the controller, by plugins/action/report_page.py. This file documents it.

DOCUMENTATION = r"""
module: report_page
short_description: Write the report page of a run anew
version_added: "0.1.0"
description:
  - Reads what a run left in artifacts/<cluster>/<run>/ and writes C(report.html) there.
  - A run writes its own page when it ends. This is for one that was interrupted.
  - Runs on the controller and contacts no node.
options:
  run:
    description: Id of the run, as its folder is named; the newest that there is when it is empty.
    type: str
    default: ""
extends_documentation_fragment: action_common_attributes
attributes:
  check_mode: {support: full, description: Does and returns the same as without it.}
  diff_mode: {support: none, description: "Changes nothing on a node, so there is nothing to show."}
  idempotent: {support: full, description: Changes nothing on a node.}
author:
  - The Muster authors
"""

EXAMPLES = r"""
- name: Write the newest page anew
  report_page:
  run_once: true

- name: Write the page of one run anew
  report_page:
    run: 20261121-093142-1df3
  run_once: true
"""

RETURN = r"""
page:
  description: Where the page is, on the controller.
  returned: success
  type: str
  sample: /srv/muster/artifacts/lab/20261121-093142-1df3/report.html
"""
