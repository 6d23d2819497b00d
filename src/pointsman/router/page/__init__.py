"""The page: what the gateway does, and what its owner can change, for a browser.

`mount` is what the daemon imports; everything else is imported at the first request to the page. A request passes
`mount` (is there a page for this peer?), `app` (who is signed in, is the form genuine?), one function of a module in
`screens`, and one template. docs/concepts/page.md says how to add a screen.
"""
