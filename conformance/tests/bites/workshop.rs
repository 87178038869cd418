//! The harnesses of locks that are broken on purpose.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockwell_conformance::{Harness, Link, Need, Server, Way, skipping_clock};
use lockwell_core::backend::{DistributedLock, MemoryLock, async_trait};
use lockwell_core::{Clock, Locks, Result};

use crate::defect::Defect;
use crate::flawed_lock::Controls;
use crate::forgetful_lock::Forgetful;
use crate::network::{Machine, Network};
use crate::remote_lock::Remote;
use crate::session_lock::Session;
use crate::weak_lock::Weak;

/// What the memory backend meets.
const OFFERS: [Need; 10] = [
    Need::Shared,
    Need::Permits,
    Need::Downgrade,
    Need::Fencing,
    Need::TokenBlocks,
    Need::Fifo,
    Need::Counted,
    Need::LongestWait,
    Need::NamedWaiters,
    Need::Records,
];

/// A lock in this process, whose requests are counted and whose server can be replaced.
#[derive(Clone, Debug)]
pub(crate) struct Workshop {
    lock: Arc<dyn DistributedLock>,
    controls: Controls,
}

impl Workshop {
    pub(crate) fn new(make: impl FnOnce(&Controls) -> Arc<dyn DistributedLock>) -> Self {
        let controls = Controls::new();
        Self { lock: make(&controls), controls }
    }
}

#[async_trait]
impl Harness for Workshop {
    fn clock(&self) -> Clock {
        self.controls.clock.clone()
    }

    fn offers(&self) -> Vec<Need> {
        OFFERS.to_vec()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.lock))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        Some(Box::new(self.clone()))
    }
}

/// What no case does to such a lock.
const NOT_HERE: &str = "this server lives in the process, without a network";

#[async_trait]
impl Server for Workshop {
    async fn pause(&self) {
        panic!("{NOT_HERE}");
    }

    async fn resume(&self) {
        self.controls.failed_over.store(false, Ordering::SeqCst);
    }

    async fn restart(&self) {
        panic!("{NOT_HERE}");
    }

    async fn fail_over(&self) {
        self.controls.failed_over.store(true, Ordering::SeqCst);
    }
}

/// It counts requests, and is no network otherwise.
#[async_trait]
impl Link for Workshop {
    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.lock))
    }

    fn blackhole(&self, _: Way) {
        panic!("{NOT_HERE}");
    }

    fn cut(&self) {
        panic!("{NOT_HERE}");
    }

    fn delay(&self, _: Duration) {
        panic!("{NOT_HERE}");
    }

    fn drop_reply(&self, _: u64) {
        panic!("{NOT_HERE}");
    }

    fn requests(&self) -> u64 {
        self.controls.requests.load(Ordering::SeqCst)
    }

    fn dropped_replies(&self) -> u64 {
        panic!("{NOT_HERE}");
    }

    fn hold_back(&self) {
        panic!("{NOT_HERE}");
    }

    async fn deliver(&self) -> u64 {
        panic!("{NOT_HERE}");
    }

    fn heal(&self) {}
}

/// A lock whose idle records can be purged.
#[derive(Debug)]
pub(crate) struct Purged(Arc<Weak>, Clock);

impl Purged {
    pub(crate) fn new(defect: Defect) -> Self {
        let clock = skipping_clock();
        Self(Arc::new(Weak::new(defect, &clock)), clock)
    }
}

#[async_trait]
impl Harness for Purged {
    fn clock(&self) -> Clock {
        self.1.clone()
    }

    fn offers(&self) -> Vec<Need> {
        [&OFFERS[..], &[Need::Purge]].concat()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.0) as Arc<dyn DistributedLock>)
    }

    async fn purge(&self) {
        self.0.purge().await;
    }
}

/// A lock at a server that has grace periods.
#[derive(Debug)]
pub(crate) struct Periods(Arc<Forgetful>, Clock);

impl Periods {
    pub(crate) fn new(defect: Defect) -> Self {
        let clock = skipping_clock();
        Self(Arc::new(Forgetful::new(defect, &clock)), clock)
    }
}

#[async_trait]
impl Harness for Periods {
    fn clock(&self) -> Clock {
        self.1.clone()
    }

    fn offers(&self) -> Vec<Need> {
        [&OFFERS[..], &[Need::Grace]].concat()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::clone(&self.0) as Arc<dyn DistributedLock>)
    }
}

/// A session for each client, at one server.
#[derive(Debug)]
pub(crate) struct Sessions {
    defect: Defect,
    server: Arc<MemoryLock>,
}

impl Sessions {
    pub(crate) fn new(defect: Defect) -> Self {
        Self { defect, server: Arc::new(MemoryLock::with_clock(skipping_clock())) }
    }
}

#[async_trait]
impl Harness for Sessions {
    fn clock(&self) -> Clock {
        self.server.clock()
    }

    fn offers(&self) -> Vec<Need> {
        OFFERS.to_vec()
    }

    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::new(Session::new(self.defect, &self.server)))
    }
}

/// A lock behind networks that fail, at a server that can be stopped.
#[derive(Debug)]
pub(crate) struct Laboratory {
    defect: Defect,
    machine: Arc<Machine>,
}

impl Laboratory {
    pub(crate) fn new(defect: Defect) -> Self {
        Self { defect, machine: Arc::new(Machine::new(defect == Defect::ForgetsAtRestart)) }
    }

    fn line(&self) -> Line {
        Line {
            defect: self.defect,
            machine: Arc::clone(&self.machine),
            network: Arc::new(Network::new(&self.machine.clock)),
        }
    }
}

#[async_trait]
impl Harness for Laboratory {
    fn clock(&self) -> Clock {
        self.machine.clock.clone()
    }

    fn offers(&self) -> Vec<Need> {
        let more = [Need::Link, Need::Server, Need::Durable];
        // Not what this lock does not do.
        let plain = OFFERS.into_iter().filter(|need| *need != Need::Downgrade);
        plain.chain(more).collect()
    }

    async fn client(&self) -> Result<Locks> {
        self.line().client().await
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        Some(Box::new(self.line()))
    }
}

#[async_trait]
impl Server for Laboratory {
    async fn pause(&self) {
        self.machine.pause(true);
    }

    async fn resume(&self) {
        self.machine.pause(false);
    }

    async fn restart(&self) {
        self.machine.restart();
    }
}

/// A network in the laboratory.
struct Line {
    defect: Defect,
    machine: Arc<Machine>,
    network: Arc<Network>,
}

#[async_trait]
impl Link for Line {
    async fn client(&self) -> Result<Locks> {
        Locks::new(Arc::new(Remote::new(self.defect, &self.machine, &self.network)))
    }

    fn blackhole(&self, way: Way) {
        self.network.blackhole(way);
    }

    fn cut(&self) {
        self.network.cut();
    }

    fn delay(&self, each_way: Duration) {
        self.network.delay(each_way);
    }

    fn drop_reply(&self, k: u64) {
        self.network.drop_reply(k);
    }

    fn requests(&self) -> u64 {
        self.network.requests()
    }

    fn dropped_replies(&self) -> u64 {
        self.network.dropped_replies()
    }

    fn hold_back(&self) {
        self.network.hold_back();
    }

    async fn deliver(&self) -> u64 {
        self.network.deliver().await
    }

    fn heal(&self) {
        self.network.heal();
    }
}
