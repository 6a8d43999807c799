"""How the site is built: `make docs`, or `sphinx-build -W --keep-going docs build/site`. It needs no network."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_extensions"), str(DOCS.parent / "examples")]
# Networks in the gallery are too small for more threads to help, and a figure must not depend on the number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pscd import __version__  # noqa: E402

project = "pscd"
author = "The pscd authors"
copyright = "the pscd authors, MIT licence"
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",  # docstrings are Google style, which numpydoc does not read
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "command_pages",
    "mathml",
    "one_picture",
    "repository_links",
]
exclude_patterns = ["results/*.reading.md", "**/README.txt", "_extensions"]
root_doc = "index"

# Markdown: the same pages read well on GitHub.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # functions in the settings of the gallery cannot be pickled

# Docstrings.
default_role = "py:obj"  # `name` in a docstring is a link where there is such a name, otherwise code
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True

SECTIONS = ("tables", "densities", "understanding", "own_parts", "images")
# The gallery runs in the build; an example that fails fails the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/[a-z]\w+\.py$",
    "abort_on_example_error": True,
    "subsection_order": [f"../examples/gallery/{name}" for name in SECTIONS],
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("pscd",),
    "backreferences_dir": "gallery/backreferences",
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "parallel": True,
    "show_signature": False,
    "matplotlib_animations": False,
    "reset_modules": ("matplotlib", "gallery_style.reset"),
    "min_reported_time": 600,  # times depend on what else the machine does
}

# Look.
html_theme = "furo"
html_title = "pscd"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1b5c92", "color-brand-content": "#1b5c92"},
    "dark_css_variables": {"color-brand-primary": "#7db7e8", "color-brand-content": "#7db7e8"},
    "navigation_with_keys": True,
}
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # it would fetch every page found, which browsers forbid to a site opened from files
highlight_language = "text"  # for blocks that name none: what commands print
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"
