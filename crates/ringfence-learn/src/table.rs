//! Tables by names of files. The standard ones hash against senders of chosen keys, which took a
//! tenth of an analysis; here all that is in a table is bounded.

use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

/// Values by their keys.
pub(crate) type Table<K, V> = HashMap<K, V, RandomState>;
/// Keys alone.
pub(crate) type Known<K> = HashSet<K, RandomState>;
