//! Directories.
mod entries;
mod index;
mod linear;
mod list;
mod position;
mod store;

#[cfg(test)]
mod tests;
