mod hostile;
mod memory;
mod model;
