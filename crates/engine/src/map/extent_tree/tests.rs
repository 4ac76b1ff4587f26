mod hostile_trees;
mod memory_nodes;
mod tree_model;
