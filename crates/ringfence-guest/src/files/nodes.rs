//! The guest kernel's inodes, as names below the root of the view.
//!
//! A node is where it was found, and which file that was, not a descriptor: a thousand files cost no descriptor, and what
//! the host renames meanwhile is not there any more, as for any other program that has its name.
//!
//! The names of one file (hard links) are one node, or the guest's kernel would hold its content and its attributes once for
//! each. They are used one at a time: that by which the file was found last.

use crate::wire::fields::{Reader, Writer};
use std::collections::HashMap;
use std::rc::Rc;

/// The root's number (FUSE_ROOT_ID).
pub const ROOT: u64 = 1;
/// The deepest path.
pub const DEEPEST: usize = 2048;

/// Which file a name was when it was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its device.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// When it was made, where numbers are used again and that is known; else 0.
    pub born: u64,
}

impl Identity {
    /// Adds it to what is saved.
    pub fn save(self, w: Writer) -> Writer {
        w.long(self.device).long(self.inode).long(self.born)
    }

    /// The next one of what was saved.
    pub fn saved(r: &mut Reader<'_>) -> Option<Identity> {
        Some(Identity { device: r.long()?, inode: r.long()?, born: r.long()? })
    }
}

/// The identity of what is no file of the host's.
const NOBODYS: Identity = Identity { device: u64::MAX, inode: u64::MAX, born: 0 };

/// The most that was ever given of a kind: there are always more.
const MOST_GIVEN: u64 = 1 << 61;

/// The next number of a kind, as it was saved.
pub fn counter(r: &mut Reader<'_>) -> Option<u64> {
    r.long().filter(|next| *next <= MOST_GIVEN)
}

/// A name in a directory's node.
type Name = (u64, Rc<[u8]>);

/// A node of another bridge's guest, which is to be looked for.
pub struct Known {
    /// Its number.
    pub node: u64,
    /// Which file it was.
    pub was: Identity,
    /// It was known to have several names.
    pub several: bool,
    /// By which number the guest knows it, where that is not the one that its device gives.
    pub inode: Option<u64>,
}

/// What the guest knows of one inode.
#[derive(Clone, Debug)]
struct Node {
    /// Where it is.
    name: Name,
    identity: Identity,
    /// By which number it is known in a guest that knew it by that before it was a fork's; else its device's gives it.
    inode: Option<u64>,
    /// Where it may have several names: few files do.
    several: Option<Box<Several>>,
    /// How often the kernel was given it, and has not forgotten it.
    lookups: u64,
    /// It has no name any more.
    gone: bool,
}

/// What is known of a file that may have several names.
#[derive(Clone, Debug, Default)]
struct Several {
    /// The mount by which they are seen, as long as a new one may be taken for the same file's.
    mount: Option<u64>,
    /// Those that the node has besides its own.
    others: Vec<Name>,
}

impl Node {
    fn others(&mut self) -> &mut Vec<Name> {
        &mut self.several.get_or_insert_default().others
    }
}

/// All nodes.
#[derive(Debug)]
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    names: HashMap<Name, u64>,
    /// Files that may have several names, by mount: rules may differ between two places at which a file is seen.
    files: HashMap<(u64, Identity), u64>,
    next: u64,
    /// The most names at once, of nodes that have one and of those that had.
    most: usize,
    /// Names besides each node's own.
    others: usize,
}

impl Nodes {
    /// Only the root, and these names in it, which every guest knows from the start; never more than `most`.
    pub fn new<const N: usize>(known: [&[u8]; N], most: usize) -> Nodes {
        let (nodes, names, files) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut nodes = Nodes { nodes, names, files, next: ROOT + 1, most, others: 0 };
        for name in known {
            nodes.look_up(ROOT, name, NOBODYS, None);
        }
        nodes
    }

    /// Gives the guest a node once more that it has.
    pub fn keep(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_add(1);
        }
    }

    /// The path of a node below the root, without a leading slash; `None` when it has none.
    pub fn path(&self, mut id: u64) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        while id != ROOT {
            let node = self.nodes.get(&id).filter(|node| !node.gone)?;
            names.push(&node.name.1);
            id = node.name.0;
            if names.len() > DEEPEST {
                return None;
            }
        }
        names.reverse();
        Some(if names.is_empty() { b".".to_vec() } else { names.join(&b'/') })
    }

    /// Whether a node was given for this file. The root, and what every guest has, stand for what is there.
    pub fn is(&self, id: u64, file: Identity) -> bool {
        let given = |node: &Node| node.identity == file || node.identity == NOBODYS;
        id == ROOT || self.nodes.get(&id).is_some_and(given)
    }

    /// The name of a node, and the directory's node in which it is; `None` when it has none.
    pub fn name(&self, id: u64) -> Option<(u64, &[u8])> {
        let node = self.nodes.get(&id).filter(|node| !node.gone)?;
        Some((node.name.0, &node.name.1))
    }

    /// Whether a node has more names than the one that is used.
    pub fn has_others(&self, id: u64) -> bool {
        let several = self.nodes.get(&id).and_then(|node| node.several.as_deref());
        several.is_some_and(|several| !several.others.is_empty())
    }

    /// Whether the guest was given this node.
    pub fn known(&self, id: u64) -> bool {
        id == ROOT || self.nodes.contains_key(&id)
    }

    /// The node that a file has by another name than this one.
    pub fn other_name(&self, parent: u64, name: &[u8], file: (u64, Identity)) -> Option<u64> {
        let id = *self.files.get(&file)?;
        (self.names.get(&(parent, Rc::from(name))) != Some(&id)).then_some(id)
    }

    /// A file may have several names from now on: those that are seen by this mount are one node.
    pub fn share(&mut self, id: u64, mount: u64) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.gone) else { return };
        let several = node.several.get_or_insert_default();
        if several.mount.is_none() {
            several.mount = Some(mount);
            self.files.entry((mount, node.identity)).or_insert(id);
        }
    }

    /// A node's names are no longer taken for the same file's as others.
    pub fn unshare(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(mount) = node.several.as_mut().and_then(|several| several.mount.take()) {
            let file = (mount, node.identity);
            if self.files.get(&file) == Some(&id) {
                self.files.remove(&file);
            }
        }
    }

    /// Gives the guest the node of a name once more; where the file has a node by another name that is seen by
    /// the same mount (`shared`), that. `None`: there are too many.
    pub fn look_up(
        &mut self,
        parent: u64,
        name: &[u8],
        identity: Identity,
        shared: Option<u64>,
    ) -> Option<u64> {
        let key = (parent, Rc::from(name));
        if let Some(&id) = self.names.get(&key) {
            if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.identity == identity) {
                node.lookups = node.lookups.saturating_add(1);
                if let Some(several) = &mut node.several
                    && let Some(other) = several.others.iter_mut().find(|other| **other == key)
                {
                    std::mem::swap(other, &mut node.name);
                }
                return Some(id);
            }
            // Another file has taken the name.
            self.remove(parent, name);
        }
        if self.nodes.len() + self.others >= self.most {
            return None;
        }
        let same = shared.and_then(|mount| self.files.get(&(mount, identity)).copied());
        if let Some((id, node)) = same.and_then(|id| Some((id, self.nodes.get_mut(&id)?))) {
            node.lookups = node.lookups.saturating_add(1);
            // Held once, however long.
            let before = std::mem::replace(&mut node.name, key.clone());
            node.others().push(before);
            self.others += 1;
            self.names.insert(key, id);
            return Some(id);
        }
        let id = self.next;
        self.next += 1;
        let name = key.clone();
        self.names.insert(key, id);
        let node = Node { name, identity, inode: None, several: None, lookups: 1, gone: false };
        self.nodes.insert(id, node);
        if let Some(mount) = shared {
            self.share(id, mount);
        }
        Some(id)
    }

    /// The kernel forgets some lookups of a node.
    pub fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return;
        }
        self.unshare(id);
        let Some(node) = self.nodes.remove(&id) else { return };
        let others = node.several.map(|several| several.others).unwrap_or_default();
        self.others -= others.len();
        for name in others.into_iter().chain([node.name]) {
            if self.names.get(&name) == Some(&id) {
                self.names.remove(&name);
            }
        }
    }

    /// A name was removed.
    pub fn remove(&mut self, parent: u64, name: &[u8]) {
        let key = (parent, Rc::from(name));
        let Some(id) = self.names.remove(&key) else { return };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let mut none = Vec::new();
        let others = node.several.as_mut().map_or(&mut none, |several| &mut several.others);
        let before = others.len();
        if node.name != key {
            others.retain(|other| *other != key);
        } else if let Some(other) = others.pop() {
            node.name = other;
        } else {
            node.gone = true;
        }
        self.others -= before - others.len();
        if node.gone {
            self.unshare(id);
        }
    }

    /// What has the name by which a node was found is another file.
    pub fn leave(&mut self, id: u64) {
        let Some((parent, name)) = self.nodes.get(&id).map(|node| node.name.clone()) else {
            return;
        };
        if self.names.get(&(parent, name.clone())) == Some(&id) {
            self.remove(parent, &name);
        }
    }

    /// A name was moved onto another one.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) {
        if from == to {
            return;
        }
        self.remove(to.0, to.1);
        if let Some(id) = self.names.remove(&(from.0, Rc::from(from.1))) {
            self.put(id, from, to);
        }
    }

    /// Two names were exchanged.
    pub fn exchange(&mut self, one: (u64, &[u8]), other: (u64, &[u8])) {
        let first = self.names.remove(&(one.0, Rc::from(one.1)));
        let second = self.names.remove(&(other.0, Rc::from(other.1)));
        // Two names of one file stay what they are.
        if first.is_some() && first == second {
            let keys = [one, other].map(|(parent, name)| (parent, Rc::from(name)));
            self.names.extend(keys.into_iter().zip(first.into_iter().chain(second)));
            return;
        }
        if let Some(id) = first {
            self.put(id, one, other);
        }
        if let Some(id) = second {
            self.put(id, other, one);
        }
    }

    /// A node has the one name in place of the other.
    fn put(&mut self, id: u64, from: (u64, &[u8]), to: (u64, &[u8])) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let key: Name = (to.0, Rc::from(to.1));
        let old = |name: &&mut Name| name.0 == from.0 && *name.1 == *from.1;
        let others = node.several.iter_mut().flat_map(|several| &mut several.others);
        if let Some(name) = others.chain([&mut node.name]).find(old) {
            *name = key.clone();
        }
        self.names.insert(key, id);
    }

    /// The node of a path, where the guest has it.
    pub fn at(&self, path: &[u8]) -> Option<u64> {
        path.split(|&byte| byte == b'/')
            .try_fold(ROOT, |parent, name| self.names.get(&(parent, Rc::from(name))).copied())
    }

    /// All of them.
    pub fn save(&self, w: Writer) -> Writer {
        let w = w.long(self.next).long(self.nodes.len() as u64);
        self.nodes.iter().fold(w, |w, (&id, node)| {
            let several = node.several.as_deref();
            let others = several.map_or(&[][..], |several| &several.others);
            let shared = several.is_some_and(|several| several.mount.is_some());
            let w = node.identity.save(w.long(id)).long(node.lookups);
            let w = w.byte(u8::from(node.gone)).byte(u8::from(shared)).maybe(node.inode);
            let names = [&node.name].into_iter().chain(others);
            let w = w.long(1 + others.len() as u64);
            names.fold(w, |w, (parent, name)| w.long(*parent).text(name))
        })
    }

    /// Takes over what was saved. `None`: it is nothing that was.
    pub fn adopt(&mut self, r: &mut Reader<'_>) -> Option<()> {
        let single = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/');
        (self.nodes, self.names) = (HashMap::new(), HashMap::new());
        self.next = counter(r)?;
        for _ in 0..r.long()? {
            let (id, identity, lookups) = (r.long()?, Identity::saved(r)?, r.long()?);
            let (gone, shared, inode) = (r.flag()?, r.flag()?, r.maybe()?);
            let mut names = Vec::new();
            for _ in 0..r.long()? {
                let (parent, name) = (r.long()?, r.text()?);
                let many = self.nodes.len() + self.others + names.len() >= self.most;
                if many || !single(&name) {
                    return None;
                }
                names.push((parent, Rc::from(name)));
            }
            let name: Name = names.first()?.clone();
            let others = names.split_off(1);
            self.others += others.len();
            if id >= self.next {
                return None;
            }
            let known = [&name].into_iter().chain(&others).filter(|_| !gone);
            self.names.extend(known.map(|name| (name.clone(), id)));
            let several = (shared || !others.is_empty())
                .then(|| Box::new(Several { mount: shared.then_some(0), others }));
            self.nodes.insert(id, Node { name, identity, inode, several, lookups, gone });
        }
        Some(())
    }

    /// Those that have a name, after they were taken over. By which mounts they are seen is not known any more.
    pub fn known_ones(&mut self) -> Vec<Known> {
        let named = self.nodes.iter_mut().filter(|(_, node)| !node.gone);
        let one = |(&id, node): (&u64, &mut Node)| {
            let several = node.several.as_mut().and_then(|several| several.mount.take());
            let (was, inode) = (node.identity, node.inode);
            Known { node: id, was, several: several.is_some(), inode }
        };
        named.map(one).collect()
    }

    /// By which number the guest knows a node, where that is not the one that its device gives.
    pub fn inode(&self, id: u64) -> Option<u64> {
        self.nodes.get(&id)?.inode
    }

    /// A node is this file, which the guest knows by this number.
    pub fn identify(&mut self, id: u64, identity: Identity, inode: Option<u64>) {
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.identity, node.inode) = (identity, inode);
        }
    }

    /// What a node was is not to be had any more.
    pub fn lose(&mut self, id: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.gone = true;
        let others = node.several.take().map(|several| several.others).unwrap_or_default();
        self.others -= others.len();
        let own = node.name.clone();
        for name in others.into_iter().chain([own]) {
            if self.names.get(&name) == Some(&id) {
                self.names.remove(&name);
            }
        }
    }
}
