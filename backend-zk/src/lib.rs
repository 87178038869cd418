//! The ZooKeeper backend of lockwell.
