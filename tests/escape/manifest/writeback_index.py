"""Write-backs through git's index: paths that git itself would never stage, and that a checkout outside
writes all the same. It compares neither the index's checksum nor its paths when it reads one.

What is staged has the length and the place in the order of what it becomes, so that a byte is all to change.
"""

from harness.checks import git_restores_nothing

from .writeback_git import created

FOUND = "found by attacking 0.1: git trusts its own index"
PLANTED = "$(printf '#!/bin/sh\\n: > {marker}\\n' | git hash-object -w --stdin)"


def staged(name: str, what: str, said: str, meant: str, then: str = "", **more):
    """`said` is staged, and becomes `meant` (both as sed's pattern and replacement take them)."""
    return created(f"index-{name}", what,
                   f"git update-index --add --cacheinfo 100755,{PLANTED},{said} && {then}"
                   f"LC_ALL=C sed -i 's#{said}#{meant}#' .git/index && {{P}} plant file x",
                   source=FOUND, **more)


HOOK = (git_restores_nothing("{ws}/.git/hooks/post-checkout"),)

ATTACKS = (
    staged("hook", "stages a hook", ".gis/hooks/post-checkout", ".git/hooks/post-checkout", checks=HOOK),
    staged("outside", "stages a file beside the workspace", "..-planted", "../planted",
           checks=(git_restores_nothing("{ws}/../planted"),)),
    staged("prefixed", "stages a hook in the index's fourth version, which shortens paths",
           ".gis/hooks/post-checkout", ".git/hooks/post-checkout", "git update-index --index-version 4 && ",
           checks=HOOK),
    staged("aside", "puts the index that has it in place by a rename", ".gis/hooks/post-checkout",
           ".git/hooks/post-checkout", "cp .git/index i && mv i .git/index && ", checks=HOOK),
)
