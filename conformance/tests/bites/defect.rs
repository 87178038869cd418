//! What can be wrong with a lock.

/// The one thing that is wrong with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Nothing: it passes all cases.
    None,

    // Of `Broken`: exclusive locks, tokens, the queue and runtimes.
    FreesByNameAlone,
    GrantsTwice,
    TokenStartsAgainAfterRelease,
    TokenStaysTheSame,
    LowerTokenWhenAskedAgain,
    ValidTooLong,
    ValidTooLongAfterRenewal,
    ForgetsTheRelease,
    SetsWithoutLookingAgain,
    RenewsTheDead,
    OvertakesTheQueue,
    IgnoresCase,
    KeepsWaitersThatLeft,
    /// All is done by tasks of the runtime that was the first to use it.
    BelongsToOneRuntime,
    /// A release is answered before it is done.
    ReleasesLater,
    /// A renewal extends the lease by next to nothing.
    ExtendsLittle,
    /// A renewal answers for all leases or for none.
    AnswersForAll,
    /// A renewal reports a loss only if all of its leases are lost.
    LosesAllOrNone,

    // Of `Flawed`: modes, what is shown, and promises.
    /// A refusal of one who does not wait takes most of a second.
    RefusesLate,
    NeverRenews,
    /// A renewal takes a while for each lease.
    RenewsOneByOne,
    CountsNoWaiters,
    CutsLabels,
    /// With each renewal the time for which a lock has been held begins anew.
    HeldSinceNow,
    /// The wait of the first in the queue begins anew with each second.
    WaitsSinceNow,
    /// Who has waited once is shown for ever.
    NamesThoseWhoLeft,
    /// Waiters are shown as they are, the last first.
    NamesTheLastFirst,
    /// The last holder is still shown as the holder.
    ShowsTheDead,
    CountsOneTooMany,
    FreesOneReaderOfAll,
    /// Every release says that something was released.
    AlwaysReleased,
    /// Readers are alone, too.
    ReadersAreWriters,
    /// There is one permit more than the limit.
    OnePermitMore,
    /// A permit and a mutex of one name do not meet.
    MixesKinds,
    ReservesOneToken,
    ReadersHaveNoTokens,
    ShowsItsOwners,
    /// It promises less than it is known to.
    PromisesNoOrder,
    /// A downgrade is reported but not done.
    NeverDowngrades,
    /// Between the writer and the reader there is a gap.
    DowngradesWithAGap,
    /// A downgrade goes by the name of the lock.
    DowngradesByName,
    /// It promises to tell of losses, and does not.
    PromisesNews,
    /// It promises notifications, and polls every second.
    PromisesWakeUps,
    /// It promises to work across hosts, and does not leave the process.
    PromisesOtherHosts,
    /// It promises to be free of herds, and each release wakes all waiters.
    WakesAll,
    /// The release of a reader is answered, and not done.
    KeepsReaders,
    /// A claim that was cancelled keeps what it gets, and the server takes a millisecond to grant it.
    KeepsTheCancelled,
    /// It promises to be safe over a failover, and the server that takes over knows of no lock.
    ForgetsAtFailover,

    // Of `Weak`: waits, bounds of leases, and the purge.
    /// An acquire that is repeated is promised a whole lease anew, and the server extends nothing.
    PromisesAnewWhenAskedAgain,
    /// A wait ends when half of it is over.
    EndsWaitsEarly,
    /// A claim that has to wait blocks its thread, until after the end of the wait.
    BlocksItsThread,
    /// A waiter is woken by releases, and looks for leases that ran out every four seconds only.
    LooksSeldom,
    /// A wait without a limit is no wait at all.
    ForeverIsNoWait,
    /// Only locks that are held alone are listed.
    ListsWritersOnly,
    /// Its promises allow leases of any length.
    AllowsAnyTtl,
    /// A reader joins other readers, whoever waits.
    ReadersOvertake,
    /// A claim for a permit joins the holders of others, whoever waits.
    PermitsOvertake,
    /// A claim that comes while another kind holds the lock is not granted it, whatever happens then.
    ForgetsAnotherKind,
    /// The place of such a claim stays when the claim has left.
    KeepsAnotherKind,
    /// All readers of a lock have one lease, which is that of the last who joined.
    ReadersHaveOneLease,
    /// The lease at the server is a tenth of what was asked for.
    LeasesTooShort,
    /// The lease at the server ends with the validity: the lock delay is left out.
    ForgetsTheLockDelay,
    /// Each claim has a lock of its own.
    ExcludesNobody,
    /// A claim gets one token, however many it reserves.
    ReservesNothing,
    /// A claim keeps all others out while it is on its way to the server.
    OneAtATime,
    /// A release is done, and says that nothing was held.
    DeniesTheRelease,
    /// With the records of idle locks the purge deletes the counter of their tokens.
    PurgeForgetsTokens,
    /// The purge deletes the records of all locks.
    PurgeFreesAll,

    // Of `Session`: sessions, connections and tasks.
    /// A release over another connection than that of the acquire is answered, and not done.
    BelongsToItsConnection,
    /// A release by another task than that of the acquire is answered, and not done.
    BelongsToItsTask,
    /// The session that holds a lock gets it again, whoever asks.
    IsReentrant,
    /// An acquire frees what the session holds of other names.
    HoldsOneLock,
    /// A lock is taken without a lease, which a second request sets. A client that has gone sends none.
    SetsTheLeaseLater,
    /// A release that goes on in another task than it began in is answered, and not done.
    ForgetsWhatMoves,
    /// A client shows the label of the first holder that it has seen, for ever.
    RemembersTheFirstHolder,

    // Of `Recording`: records.
    /// A record ends with the hold.
    KeepsRecordsInTheRow,
    /// A record ends with its first zero byte.
    CutsRecords,
    MixesRecordKinds,
    /// Anyone writes as long as the lock is held.
    WritesByName,
    /// Anyone writes as long as the lock is free.
    WritesUnlessTaken,
    /// Whoever has no lower token than the last writer writes.
    ComparesRecordedTokens,
    /// There is time between the look and the write.
    LooksThenWrites,
    IgnoresNumbers,
    /// A write that is repeated is refused.
    RefusesRepeats,
    /// The last write is not read before the next one.
    ReadsOldRecords,
    /// A reader writes.
    IgnoresTheMode,
    /// Whatever was granted to the claim of the holder writes.
    KnowsWritersByTheirClaims,
    /// Only a writer reads.
    ReadsForWritersOnly,
    /// A claim looks for a record.
    AsksForRecords,

    // Of `Forgetful`: grace periods.
    /// It grants locks although the server may have forgotten some.
    GrantsWithoutMark,
    /// The same for readers alone.
    GrantsToReadersWithoutMark,
    /// A lock of which nobody knows whether it is held is refused as if it were.
    CallsTheUnknownHeld,
    /// Such a lock is shown as free.
    CallsTheUnknownFree,
    /// Holders lose their locks.
    ReclaimsNothing,
    /// Records are written.
    WritesInGracePeriods,
    /// A period that is under way does not begin anew.
    BeginsNoPeriodAnew,

    // Of `Remote`: a lock behind a network.
    /// A renewal without an answer counts as done.
    RenewsBlindly,
    /// The error of a server that is silent says that the program is wrong.
    CallsSilenceInternal,
    /// The error of a connection that breaks says that the lock was lost.
    CallsResetsLosses,
    /// A call has no limit.
    WaitsForEver,
    /// A release that is repeated says that nothing was held.
    DeniesWhatItRepeats,
    /// A release that is repeated says that it has released the lock, whatever it finds.
    ConfirmsWhatItRepeats,
    /// It repeats an acquire, and does not say that it is in doubt.
    ForgetsLateCopies,
    /// An acquire that is repeated does not see the permits of its name.
    MixesKindsWhenRepeated,
    /// A request is given up when the time of its wait has passed, answered or not.
    EndsByTheClock,
    /// A free lock takes three round trips.
    AsksThreeTimes,
    /// The connection is never replaced.
    NeverReconnects,
    /// A restart of the server ends all leases, and tokens begin anew.
    ForgetsAtRestart,
    /// A waiter whose server is silent fails for good.
    GivesUpInSilence,
    /// An acquire goes on after the end of its wait.
    KeepsAsking,

    // Of `Served`: a lock for other processes.
    /// The server extends the leases of the dead for some seconds.
    KeepsTheDead,
    /// A waiter that died gets its turn, and keeps it for some seconds.
    KeepsDeadWaiters,
    /// The validity of a grant counts from the beginning of the wait.
    CountsFromTheQuestion,
    /// Its grants are valid for an hour.
    ValidForAnHour,
}
