//! Damage of extended attributes against what uses them.

damage! {
    /// Extended attributes against what uses them.
    AttributeDamage {
        NoBlock => "no attribute block",
        References { stored: u32, users: u32 } => "reference count {stored}, used by {users}",
        ValueReferences { stored: u64, users: u64 } =>
            "value of an attribute with {stored} users by its count, found {users}",
        UnusedValue => "value of an attribute, which no attribute has",
        ValueHash => "value of an attribute that does not fit its hash",
        Hash => "an attribute's hash does not fit its value",
        NoNameKind => "an attribute without a kind of name",
    }
}
