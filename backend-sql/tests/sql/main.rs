//! What is particular to locks in SQL tables. What every backend must do is in the conformance suite.

mod addresses;
mod any_client;
mod columns;
mod connections;
mod crash;
mod cut_off;
mod damage;
mod dead_waiters;
mod disk;
mod disk_marks;
mod doubt;
mod environment;
mod grace;
mod grace_marks;
mod grace_tables;
mod groups;
mod hand_over;
mod handed;
mod hot_names;
mod hung_commits;
mod inherited;
mod killed;
mod large;
mod lazy_since;
mod locked_tables;
mod logins;
mod many;
mod marked;
mod mysql;
mod nodelay;
mod notify;
mod passwords;
mod pooler;
mod purge;
mod queue;
mod reclaim;
mod record;
mod records;
mod refused;
mod rights;
mod schema;
mod schemas;
mod servers;
mod sockets;
#[cfg(target_os = "linux")]
mod sqlite_alone;
mod sqlite_child;
mod sqlite_files;
#[cfg(unix)]
mod sqlite_messages;
mod sqlite_power;
mod sqlite_sync;
mod sqlite_undriven;
#[cfg(unix)]
mod sqlite_wakes;
mod state_row;
mod switchover;
#[cfg(feature = "tls")]
mod tls;
mod unpolled;
mod unread;
mod variants;
mod verify;
mod verify_routine;
mod waited;
mod wake_ups;
