//! Damage of extended attributes against what uses them.

damage! {
    /// Extended attributes against what uses them.
    AttributeDamage {
        NoBlock => "no attribute block",
        References { stored: u32, users: u32 } => "reference count {stored}, used by {users}",
        Hash => "an attribute's hash does not fit its value",
        NoNameKind => "an attribute without a kind of name",
    }
}
