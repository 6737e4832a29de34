//! What does an operation of this name do to elements? By names that are usual, however they go on: `write-set` adds, `read-set-all`
//! reads.

use crate::named::ByName;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It hands an element over.
    Add,
    /// It takes an element away without giving it to anybody.
    Remove,
    /// It shows elements.
    Read,
    /// It takes one element out and gives it to the client.
    Take,
    /// It takes all elements out.
    Drain,
    /// Nothing that matters here.
    Other,
}

const ADDS: [&str; 18] = [
    "add",
    "insert",
    "write",
    "w",
    "append",
    "put",
    "set",
    "create",
    "broadcast",
    "enqueue",
    "offer",
    "push",
    "publish",
    "produce",
    "send",
    "store",
    "record",
    "register",
];
const REMOVES: [&str; 5] = ["remove", "delete", "del", "rem", "discard"];
const READS: [&str; 8] = ["read", "r", "get", "list", "members", "dump", "scan", "final"];
const TAKES: [&str; 6] = ["dequeue", "pop", "take", "poll", "consume", "receive"];

/// The role of a function of this name.
pub(crate) fn role_of(f: &str) -> Role {
    let first = f.split(['-', '_', ' ', '/']).next().unwrap_or(f);
    let is = |names: &[&str]| names.contains(&first);
    match () {
        () if is(&ADDS) => Role::Add,
        () if is(&REMOVES) => Role::Remove,
        () if is(&READS) => Role::Read,
        () if is(&TAKES) => Role::Take,
        () if first == "drain" => Role::Drain,
        () => Role::Other,
    }
}

/// Roles of functions.
pub(crate) type Roles = ByName<Role>;

impl Default for Roles {
    fn default() -> Roles {
        ByName::new(role_of, Role::Other)
    }
}

/// How often each message that was handed over has to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantee {
    /// Once.
    ExactlyOnce,
    /// Once or more.
    #[default]
    AtLeastOnce,
    /// Once or never.
    AtMostOnce,
}

impl Guarantee {
    /// May something acknowledged not arrive?
    pub fn may_lose(self) -> bool {
        self == Guarantee::AtMostOnce
    }

    /// May something arrive twice?
    pub fn may_repeat(self) -> bool {
        self == Guarantee::AtLeastOnce
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::ExactlyOnce => "exactly-once",
            Guarantee::AtLeastOnce => "at-least-once",
            Guarantee::AtMostOnce => "at-most-once",
        }
    }
}
