//! Peers in one workload: their rounds beside ours, and what came out.

use std::time::{Duration, Instant};

use faults::nanos;

use super::bench::Bench;
use super::kill;
use crate::error::{Error, Result};
use crate::measure::counter::Count;
use crate::measure::counter::Counter;
use crate::measure::history::{History, Turn, summary};
use crate::measure::peer::Peer;
use crate::measure::peer::process::{About, Process};
use crate::plan::case::Case;
use crate::record::{PeerResult, PeerRound, Quantity, Round, compare, requests};
use crate::stats::Sample;
use crate::stats::interval::Interval;

/// How long it may take until the last process has read its order. The contention ends at the same moment for
/// all.
const ORDER: Duration = Duration::from_millis(5);

/// A round that takes so long hangs: rounds are planned to take some seconds at most.
const HANGS: Duration = Duration::from_secs(20);

/// A holder that is to be killed holds for so long. Some libraries have leases of half a minute and more.
const LONGEST_HOLD: Duration = Duration::from_secs(90);

/// The peers that there are for this backend. One that fails is out, and its result says why; ours go on.
#[derive(Default)]
pub(crate) struct MeasuredPeers(Vec<MeasuredPeer>);

struct MeasuredPeer {
    peer: Peer,
    /// Of the server.
    url: String,
    case: Case,
    name: String,
    quantity: Quantity,
    state: Result<(Vec<Process>, About)>,
    sample: Sample,
    histories: Vec<History>,
    rounds: Vec<PeerRound>,
    /// The requests for each acquisition, in each round.
    each: Vec<f64>,
    wakeups: Vec<f64>,
    /// How long the round took in which it failed.
    wasted: Duration,
}

/// One round of a peer; `None` if it is out.
type PeerWork = Option<Done>;

pub(crate) struct Done {
    sample: Sample,
    per_second: f64,
    history: Option<History>,
    count: Option<Count>,
}

impl MeasuredPeers {
    /// Starts the processes.
    pub(crate) async fn start(
        bench: &Bench,
        case: &Case,
        name: &str,
        processes: usize,
        quantity: Quantity,
    ) -> Self {
        let mut measured = Vec::new();
        for peer in bench.peers_of(case) {
            measured.push(MeasuredPeer {
                peer: peer.clone(),
                url: bench.target.url.clone(),
                case: case.clone(),
                // Ours have a prefix, so that the two never meet; this is for those who look at the keys.
                name: format!("{name}/{}", peer.name),
                quantity,
                state: start(peer, &bench.target.url, processes).await,
                sample: Sample::new(),
                histories: Vec::new(),
                rounds: Vec::new(),
                each: Vec::new(),
                wakeups: Vec::new(),
                wasted: Duration::ZERO,
            });
        }
        Self(measured)
    }

    /// Tasks of one process, each on a name of its own.
    pub(crate) async fn cycles(&mut self, tasks: usize, length: Duration) -> Vec<PeerWork> {
        let mut all = Vec::new();
        for peer in &mut self.0 {
            let work = async |name: &str, processes: &mut Vec<Process>| {
                let process = processes.first_mut().ok_or_else(|| Error::failed("no process"))?;
                process.order(&format!("cycles {name} {tasks} {}", length.as_nanos())).await?;
                let sample = process.sample(length).await?;
                Ok(Done { per_second: sample.per_second(), sample, history: None, count: None })
            };
            all.push(peer.round(HANGS, work).await);
        }
        all
    }

    /// All processes, with this number of tasks each, on the names of the case. `what` are the spans that
    /// count.
    pub(crate) async fn contend(
        &mut self,
        tasks: usize,
        hold: Duration,
        length: Duration,
        what: fn(&History) -> Sample,
        counter: Option<&Counter>,
    ) -> Vec<PeerWork> {
        let mut all = Vec::new();
        for peer in &mut self.0 {
            let case = peer.case.clone();
            let work = async |name: &str, processes: &mut Vec<Process>| {
                let names = of_each(&case, name, processes.len());
                let contend = turns(&names, processes, tasks, hold, length);
                let (turns, count) = Counter::over(counter, contend).await?;
                let (turns, until) = turns?;
                let history = History::of_peer(turns, processes.len() * tasks, case.names, until);
                let (sample, per_second) = (what(&history), history.per_second());
                Ok(Done { sample, per_second, history: Some(history), count })
            };
            all.push(peer.round(HANGS, work).await);
        }
        all
    }

    /// Kills a process that holds the lock, so long after another began to wait for it.
    pub(crate) async fn killed(&mut self, after: Duration) -> Vec<PeerWork> {
        let mut all = Vec::new();
        for peer in &mut self.0 {
            let (library, url) = (peer.peer.clone(), peer.url.clone());
            let work = async |name: &str, processes: &mut Vec<Process>| {
                let waiter = processes.first_mut().ok_or_else(|| Error::failed("no process"))?;
                let contend = |hold: Duration| {
                    let until = nanos() + u64::try_from(kill::ORDER.as_nanos()).unwrap_or(u64::MAX);
                    format!("contend {name} 1 {} {until}", hold.as_nanos())
                };
                let (mut holder, _) = Process::start(&library, &url).await?;
                holder.order(&contend(LONGEST_HOLD)).await?;
                tokio::time::sleep(kill::ORDER).await;
                waiter.order(&contend(Duration::ZERO)).await?;
                tokio::time::sleep(after).await;
                let at = nanos();
                holder.kill().await?;
                // A round that says nothing has no time, and is not noted.
                let turns = waiter.turns(LONGEST_HOLD, 0).await?;
                let sample = kill::since(&turns, at).unwrap_or_else(Sample::new);
                Ok(Done { sample, per_second: 0.0, history: None, count: None })
            };
            all.push(peer.round(LONGEST_HOLD, work).await);
        }
        all
    }

    /// Notes a round beside ours.
    pub(crate) fn note(&mut self, theirs: Vec<PeerWork>, round: Round) {
        for (peer, done) in self.0.iter_mut().zip(theirs) {
            if let Some(done) = done {
                peer.note(done, round);
            }
        }
    }

    /// The time of rounds in which one failed or hung. That is not to cost us our rounds.
    pub(crate) fn wasted(&self) -> Duration {
        self.0.iter().map(|peer| peer.wasted).sum()
    }

    /// Ends the processes, and says what came out.
    pub(crate) fn finish(self) -> Vec<PeerResult> {
        self.0.into_iter().map(MeasuredPeer::result).collect()
    }
}

/// The name of each process. Neighbours have the same.
fn of_each(case: &Case, name: &str, processes: usize) -> Vec<String> {
    (0..processes).map(|number| case.name_of(name, number * case.names / processes)).collect()
}

async fn turns(
    names: &[String],
    processes: &mut [Process],
    tasks: usize,
    hold: Duration,
    length: Duration,
) -> Result<(Vec<Turn>, u64)> {
    let until = nanos() + u64::try_from((ORDER + length).as_nanos()).unwrap_or(u64::MAX);
    for (process, name) in processes.iter_mut().zip(names) {
        process.order(&format!("contend {name} {tasks} {} {until}", hold.as_nanos())).await?;
    }
    let mut turns = Vec::new();
    for (number, process) in processes.iter_mut().enumerate() {
        turns.extend(process.turns(length, number * tasks).await?);
    }
    Ok((turns, until))
}

async fn start(peer: &Peer, url: &str, count: usize) -> Result<(Vec<Process>, About)> {
    let mut processes = Vec::new();
    let mut about = About { version: String::new(), setup: String::new(), lacks: None };
    for _ in 0..count {
        let (process, hello) = Process::start(peer, url).await?;
        processes.push(process);
        about = hello;
    }
    Ok((processes, about))
}

impl MeasuredPeer {
    /// A round that takes as long as `hangs` is the last one.
    async fn round(
        &mut self,
        hangs: Duration,
        work: impl AsyncFnOnce(&str, &mut Vec<Process>) -> Result<Done>,
    ) -> PeerWork {
        let (processes, _) = self.state.as_mut().ok()?;
        let began = Instant::now();
        match work(&self.name, processes).await {
            Ok(done) if began.elapsed() < hangs => Some(done),
            Ok(done) => {
                let reason = format!("a round took {:.0?}: it is not measured any more", began.elapsed());
                self.stop(began, Error::failed(reason));
                Some(done)
            }
            Err(error) => {
                self.stop(began, error);
                None
            }
        }
    }

    /// It is not measured any more in this case.
    fn stop(&mut self, began: Instant, error: Error) {
        self.wasted = began.elapsed();
        self.state = Err(error);
    }

    fn note(&mut self, done: Done, round: Round) {
        let value = match self.quantity {
            Quantity::LatencyUs | Quantity::CpuUs => done.sample.median_us(),
            Quantity::PerSecond => done.per_second,
        };
        if value > 0.0 {
            self.rounds.push(PeerRound { ours: round.ours, theirs: value, floor: round.floor });
        }
        self.sample.append(&done.sample);
        if let Some((history, count)) = done.history.as_ref().zip(done.count) {
            self.each.push(history.each(count.requests));
            self.wakeups.extend(count.wakeups.map(|wakeups| history.each(wakeups)));
        }
        self.histories.extend(done.history);
    }

    fn result(self) -> PeerResult {
        let against =
            |what: fn(&PeerRound) -> Round| compare(&self.rounds.iter().map(what).collect::<Vec<_>>());
        let (theirs, _, ratio) = against(|round| Round { ours: round.theirs, floor: round.floor });
        let ours_to_theirs = Interval::of(self.rounds.iter().map(|round| round.ours / round.theirs));
        let handing = (!self.histories.is_empty()).then(|| summary(&self.histories));
        let (hello, error) = match self.state {
            Ok((_, hello)) => (Some(hello), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let nothing = self.rounds.is_empty().then(|| "nothing could be compared".to_owned());
        PeerResult {
            name: self.peer.name.clone(),
            version: hello.as_ref().map(|hello| hello.version.clone()),
            setup: hello.as_ref().map(|hello| hello.setup.clone()),
            lacks: hello.and_then(|hello| hello.lacks),
            theirs,
            ratio,
            ours_to_theirs,
            latency_us: self.sample.spread(),
            per_second: handing
                .as_ref()
                .map_or(self.sample.per_second(), |some| some.acquisitions_per_second),
            rounds: self.rounds,
            handing,
            requests_each: requests(&self.each),
            requests_rounds: self.each,
            wakeups_each: requests(&self.wakeups),
            unsafe_because: self.peer.unsafe_because.map(str::to_owned),
            error: error.or(nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn neighbours_have_one_name() {
        let one = Case::of_tasks(4, Plan::SMOKE.hot);
        assert_eq!(of_each(&one, "a", 2), ["a", "a"]);
        let several = Case { names: 2, ..one };
        assert_eq!(of_each(&several, "a", 4), ["a/0", "a/0", "a/1", "a/1"]);
    }
}
