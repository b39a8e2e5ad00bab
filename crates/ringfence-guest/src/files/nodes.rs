//! The guest kernel's inodes, as names below the root of the view.
//!
//! A node is where it was found, not a descriptor: a thousand files cost no descriptor, and what
//! the host renames meanwhile is not there any more, as for any other program that has its name.

use std::collections::HashMap;
use std::rc::Rc;

/// The root's number (FUSE_ROOT_ID).
pub const ROOT: u64 = 1;
/// The deepest path.
const DEEPEST: usize = 2048;

/// The identity of what is no file of the host's.
const NOBODYS: (u64, u64) = (u64::MAX, u64::MAX);

/// What the guest knows of one inode.
#[derive(Clone, Debug)]
struct Node {
    parent: u64,
    name: Rc<[u8]>,
    /// Which file it was when it was looked up: device and inode.
    identity: (u64, u64),
    /// How often the kernel was given it, and has not forgotten it.
    lookups: u64,
    /// It has no name any more.
    gone: bool,
}

/// All nodes.
#[derive(Debug)]
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    names: HashMap<(u64, Rc<[u8]>), u64>,
    next: u64,
    /// The most nodes at once.
    most: usize,
}

impl Nodes {
    /// Only the root, and these names in it, which every guest knows from the start; never more than `most`.
    pub fn new<const N: usize>(known: [&[u8]; N], most: usize) -> Nodes {
        let (nodes, names) = (HashMap::new(), HashMap::new());
        let mut nodes = Nodes { nodes, names, next: ROOT + 1, most };
        for name in known {
            nodes.look_up(ROOT, name, NOBODYS);
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
            names.push(&node.name);
            id = node.parent;
            if names.len() > DEEPEST {
                return None;
            }
        }
        names.reverse();
        Some(if names.is_empty() { b".".to_vec() } else { names.join(&b'/') })
    }

    /// Whether the guest was given this node.
    pub fn known(&self, id: u64) -> bool {
        id == ROOT || self.nodes.contains_key(&id)
    }

    /// Gives the guest the node of a name once more. `None`: there are too many.
    pub fn look_up(&mut self, parent: u64, name: &[u8], identity: (u64, u64)) -> Option<u64> {
        let key = (parent, Rc::from(name));
        if let Some(&id) = self.names.get(&key)
            && let Some(node) = self.nodes.get_mut(&id)
        {
            if node.identity == identity {
                node.lookups = node.lookups.saturating_add(1);
                return Some(id);
            }
            // Another file has taken the name.
            node.gone = true;
        }
        if self.nodes.len() >= self.most {
            return None;
        }
        let id = self.next;
        self.next += 1;
        // Held once, however long.
        let name = Rc::clone(&key.1);
        self.names.insert(key, id);
        self.nodes.insert(id, Node { parent, name, identity, lookups: 1, gone: false });
        Some(id)
    }

    /// The kernel forgets some lookups of a node.
    pub fn forget(&mut self, id: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0
            && let Some(node) = self.nodes.remove(&id)
        {
            let key = (node.parent, node.name);
            if self.names.get(&key) == Some(&id) {
                self.names.remove(&key);
            }
        }
    }

    /// A name was removed.
    pub fn remove(&mut self, parent: u64, name: &[u8]) {
        if let Some(id) = self.names.remove(&(parent, Rc::from(name)))
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.gone = true;
        }
    }

    /// A name was moved onto another one.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) {
        if from == to {
            return;
        }
        self.remove(to.0, to.1);
        if let Some(id) = self.names.remove(&(from.0, Rc::from(from.1))) {
            self.put(id, to);
        }
    }

    /// Two names were exchanged.
    pub fn exchange(&mut self, one: (u64, &[u8]), other: (u64, &[u8])) {
        let first = self.names.remove(&(one.0, Rc::from(one.1)));
        let second = self.names.remove(&(other.0, Rc::from(other.1)));
        if let Some(id) = first {
            self.put(id, other);
        }
        if let Some(id) = second {
            self.put(id, one);
        }
    }

    fn put(&mut self, id: u64, at: (u64, &[u8])) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.parent = at.0;
            node.name = Rc::from(at.1);
            self.names.insert((at.0, Rc::clone(&node.name)), id);
        }
    }
}
