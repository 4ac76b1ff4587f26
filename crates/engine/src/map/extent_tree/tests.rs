mod hostile_trees;
mod memory_nodes;
mod shifts;
mod tree_model;
