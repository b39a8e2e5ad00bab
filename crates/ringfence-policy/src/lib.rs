//! What a sandbox may do: profiles, merging, validation, and the one [`decide()`] that everything
//! else reads.
//!
//! The way of the data: a [`Profile`] is a file read; [`resolve()`] merges profiles and options
//! into a [`Policy`] for one user and one directory; [`decide()`] answers questions about it.

#![forbid(unsafe_code)]

pub mod address;
mod arguments;
pub mod authorities;
mod begun;
pub mod builtin;
pub mod calls;
pub mod catalog;
mod compiled;
mod dbus;
pub mod decide;
pub mod edit;
mod environment;
pub mod error;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod git_everywhere;
mod git_files;
mod git_user;
pub mod git_variables;
mod gitbytes;
pub mod gitconfig;
mod githarmless;
mod gitindex;
pub mod gitnamed;
mod gitothers;
mod gitpath;
pub mod gitread;
mod gitruns;
pub mod gitstate;
mod gitwords;
mod gitworktree;
pub mod glob;
pub mod guard;
mod homes;
pub mod host;
pub mod host_program;
pub mod http;
pub mod import;
mod judge_environment;
mod judge_network;
mod judge_path;
pub mod kept;
pub mod key;
mod limits;
pub mod merge;
mod moved;
mod network;
pub mod own;
pub mod path;
pub mod policy;
pub mod port;
pub mod profile;
pub mod protect;
mod protect_agents;
mod protect_home;
mod protect_names;
pub mod registry;
pub mod resolve;
mod rules;
pub mod schema;
pub mod secrets;
mod service;
pub mod settings;
pub mod shown;
pub mod size;
mod started;
pub mod suggest;
mod wildcard;
mod workspace;

pub use decide::{Decision, Subject, decide, decide_over};
pub use error::PolicyError;
pub use files::{FileView, HostFiles, Resolver, variable_names};
pub use gitconfig::executes as git_config_executes;
pub use homes::{home_of, homes, homes_of_others};
pub use host::{Host, HostRule};
pub use judge_environment::Hidden;
pub use judge_path::{denied, protected_whole, through_links, unseen_above};
pub use key::Key;
pub use merge::Setting;
pub use moved::Moved;
pub use policy::*;
pub use profile::Profile;
pub use resolve::{Context, Request, resolve};
pub use schema::schema;
pub use service::address_path as bus_socket;
pub use workspace::too_much;
