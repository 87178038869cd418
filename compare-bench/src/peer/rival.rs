//! A peer in one workload: its rounds beside ours, and what came out.

use std::time::Duration;

use super::Peer;
use super::process::{Hello, Process};
use crate::error::{Error, Result};
use crate::history::{History, nanos, summary};
use crate::report::{PeerResult, PeerRound, Quantity, Round, compare};
use crate::stats::{Sample, median};
use crate::workload::Bench;

/// How long it may take until the last process has read its order. The fight ends at the same moment for all.
const ORDER: Duration = Duration::from_millis(5);

/// A peer, if there is one for this backend. A peer that fails is out, and its result says why; ours go on.
pub(crate) struct Rival(Option<Inner>);

struct Inner {
    peer: Peer,
    name: String,
    quantity: Quantity,
    state: Result<(Vec<Process>, Hello)>,
    sample: Sample,
    histories: Vec<History>,
    rounds: Vec<PeerRound>,
}

/// One round of a peer.
pub(crate) struct Theirs {
    sample: Sample,
    per_second: f64,
    history: Option<History>,
}

impl Rival {
    /// Starts the processes.
    pub(crate) async fn start(bench: &Bench, name: &str, processes: usize, quantity: Quantity) -> Self {
        let Some(peer) = &bench.peer else { return Self(None) };
        Self(Some(Inner {
            peer: peer.clone(),
            // Ours have a prefix, so that the two never meet; this is for those who look at the keys.
            name: format!("{name}/{}", peer.name),
            quantity,
            state: start(peer, &bench.target.url, processes).await,
            sample: Sample::new(),
            histories: Vec::new(),
            rounds: Vec::new(),
        }))
    }

    /// Tasks of one process, each on a name of its own.
    pub(crate) async fn cycles(&mut self, tasks: usize, length: Duration) -> Option<Theirs> {
        let inner = self.0.as_mut()?;
        let order = format!("cycles {} {tasks} {}", inner.name, length.as_nanos());
        inner
            .round(async |processes| {
                let process = processes.first_mut().ok_or_else(|| Error::failed("no process"))?;
                process.order(&order).await?;
                let sample = process.sample(length).await?;
                Ok(Theirs { per_second: sample.per_second(), sample, history: None })
            })
            .await
    }

    /// All processes, with so many tasks each, on one name. `what` are the spans that count.
    pub(crate) async fn fight(
        &mut self,
        tasks: usize,
        hold: Duration,
        length: Duration,
        what: fn(&History) -> Sample,
    ) -> Option<Theirs> {
        let inner = self.0.as_mut()?;
        let until = nanos() + u64::try_from((ORDER + length).as_nanos()).unwrap_or(u64::MAX);
        let order = format!("fight {} {tasks} {} {until}", inner.name, hold.as_nanos());
        inner
            .round(async |processes| {
                for process in processes.iter_mut() {
                    process.order(&order).await?;
                }
                let mut turns = Vec::new();
                for (number, process) in processes.iter_mut().enumerate() {
                    turns.extend(process.turns(length, number * tasks).await?);
                }
                let history = History::of_peer(turns, processes.len() * tasks);
                let (sample, per_second) = (what(&history), history.per_second());
                Ok(Theirs { sample, per_second, history: Some(history) })
            })
            .await
    }

    /// Notes a round beside ours.
    pub(crate) fn note(&mut self, theirs: Option<Theirs>, round: Round) {
        let (Some(inner), Some(Theirs { sample, per_second, history })) = (&mut self.0, theirs) else {
            return;
        };
        let value = match inner.quantity {
            Quantity::LatencyUs => sample.median_us(),
            Quantity::PerSecond => per_second,
        };
        if value > 0.0 {
            inner.rounds.push(PeerRound { ours: round.ours, theirs: value, floor: round.floor });
        }
        inner.sample.append(&sample);
        inner.histories.extend(history);
    }

    /// Ends the processes, and says what came out.
    pub(crate) fn finish(self) -> Vec<PeerResult> {
        self.0.map(Inner::result).into_iter().collect()
    }
}

async fn start(peer: &Peer, url: &str, count: usize) -> Result<(Vec<Process>, Hello)> {
    let mut processes = Vec::new();
    let mut about = Hello { version: String::new(), setup: String::new() };
    for _ in 0..count {
        let (process, hello) = Process::start(peer, url).await?;
        processes.push(process);
        about = hello;
    }
    Ok((processes, about))
}

impl Inner {
    async fn round(&mut self, work: impl AsyncFnOnce(&mut Vec<Process>) -> Result<Theirs>) -> Option<Theirs> {
        let (processes, _) = self.state.as_mut().ok()?;
        match work(processes).await {
            Ok(theirs) => Some(theirs),
            Err(error) => {
                self.state = Err(error);
                None
            }
        }
    }

    fn result(self) -> PeerResult {
        let against =
            |what: fn(&PeerRound) -> Round| compare(&self.rounds.iter().map(what).collect::<Vec<_>>());
        let (theirs, _, ratio) = against(|round| Round { ours: round.theirs, floor: round.floor });
        let ours_to_theirs = median(self.rounds.iter().map(|round| round.ours / round.theirs));
        let handing = (!self.histories.is_empty()).then(|| summary(&self.histories));
        let (hello, error) = match self.state {
            Ok((_, hello)) => (Some(hello), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let nothing = self.rounds.is_empty().then(|| "nothing could be compared".to_owned());
        PeerResult {
            name: self.peer.name,
            version: hello.as_ref().map(|hello| hello.version.clone()),
            setup: hello.map(|hello| hello.setup),
            theirs,
            ratio,
            ours_to_theirs,
            latency_us: self.sample.spread(),
            per_second: handing
                .as_ref()
                .map_or(self.sample.per_second(), |some| some.acquisitions_per_second),
            rounds: self.rounds,
            handing,
            error: error.or(nothing),
        }
    }
}
