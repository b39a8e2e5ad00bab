//! Writable trees that are somebody else's, where root writes outside by a capability that it does not have inside.

use super::Planning;
use super::grants::Grants;

/// What root should know of a directory that it grants for writing, and may not write: a checkout that a container or a
/// continuous integration has from another user.
pub(super) fn told(planning: &Planning<'_>, grants: &Grants) -> Option<String> {
    if planning.facts.user.0 != 0 {
        return None;
    }
    let mut written = grants.trees.iter().filter(|(_, grant)| grant.write);
    let (tree, owner) =
        written.find_map(|(tree, _)| Some((tree, planning.paths.foreign(tree)?)))?;
    Some(format!(
        "{} is user {owner}'s, and root inside may write no more there than anybody: run it as that user, as by \
         setpriv --reuid={owner} --regid={owner} --clear-groups, with a HOME of its own",
        tree.display()
    ))
}
