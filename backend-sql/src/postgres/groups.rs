//! What PostgreSQL is asked about locks that several hold together.

use std::time::Duration;

use lockcore::backend::Waiters;
use lockcore::{Claim, LockName, Mode};
use sqlx::postgres::PgConnection;

use super::statements::{ELSEWHERE, UNSEEN};
use super::{Postgres, labels, names, owners, tokens, ttls};
use crate::dialect::{Ask, Freed, Took, block, micros, token};
use crate::groups::Groups;

/// Whether a row is missing, the token of a member, that of a new one, how the lock is in use, and the time left.
type Joined = (bool, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl Postgres {
    async fn join_rows(
        &self,
        conn: &mut PgConnection,
        mode: Mode,
        asks: &[Ask],
    ) -> sqlx::Result<Vec<Joined>> {
        let claims = || asks.iter().map(|ask| &ask.claim);
        self.statement(&self.sql.join)
            .bind(names(claims()))
            .bind(owners(claims()))
            .bind(ttls(claims()))
            .bind(labels(claims()))
            .bind(tokens(claims()))
            .bind(mode.code())
            .rows(conn)
            .await
    }

    /// Finds who is next behind each of these heads.
    pub(super) async fn behind_each(
        &self,
        conn: &mut PgConnection,
        heads: Vec<(String, Option<i64>)>,
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let mut next = Vec::new();
        for (name, head) in heads {
            if let Ok(name) = LockName::new(name) {
                next.extend(self.behind_head(conn, &name, head, waiters).await?);
            }
        }
        Ok(next)
    }

    /// Finds who is next behind a head, or who the head is, if the statement may not have seen it.
    async fn behind_head(
        &self,
        conn: &mut PgConnection,
        name: &LockName,
        head: Option<i64>,
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let head = if head == Some(UNSEEN) { self.head(conn, name, waiters).await? } else { head };
        self.behind(conn, name, head.filter(|head| *head != ELSEWHERE), waiters).await
    }

    /// Finds who is next on each of these locks that can be taken.
    pub(super) async fn call_next(
        &self,
        conn: &mut PgConnection,
        names: Vec<&str>,
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let heads: Vec<(String, Option<i64>)> =
            self.statement(&self.sql.call_next).bind(names).bind(waiters.client()).rows(&mut *conn).await?;
        self.behind_each(conn, heads, waiters).await
    }

    /// Takes one member out of its group.
    async fn part_one(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        waiters: &Waiters,
    ) -> sqlx::Result<Freed> {
        let head: Option<Option<i64>> = self
            .statement(&self.sql.part_one)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(waiters.client())
            .value(&mut *conn)
            .await?;
        let Some(head) = head else { return Ok(Freed::default()) };
        Ok(Freed::new(true, self.behind_head(conn, claim.name(), head, waiters).await?))
    }
}

impl Groups for Postgres {
    async fn join(&self, conn: &mut PgConnection, mode: Mode, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if let [Ask { claim, .. }] = asks {
            let joined: Option<i64> = self
                .statement(&self.sql.join_one)
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(block(claim))
                .bind(mode.code())
                .value(&mut *conn)
                .await?;
            if let Some(number) = joined {
                return Ok(vec![Took::Granted(token(number))]);
            }
        }
        // Many claims; or one that was refused, is a member already, or whose lock has no row yet.
        let mut rows = self.join_rows(conn, mode, asks).await?;
        if rows.iter().any(|(missing, ..)| *missing) {
            let new = asks.iter().zip(&rows).filter(|(_, (missing, ..))| *missing);
            let new = names(new.map(|(ask, _)| &ask.claim));
            self.make(conn, new).await?;
            rows = self.join_rows(conn, mode, asks).await?;
        }
        let answer = |(ask, (_, taken, made, in_use, left)): (&Ask, Joined)| match (taken, made) {
            (Some(number), _) => Took::Member(token(number)),
            (_, Some(number)) => Took::Granted(token(number)),
            _ => Took::refused(&ask.claim, in_use, left),
        };
        Ok(asks.iter().zip(rows).map(answer).collect())
    }

    async fn part(
        &self,
        conn: &mut PgConnection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        if let [claim] = claims {
            return Ok(vec![self.part_one(conn, claim, waiters).await?]);
        }
        let gone: Vec<(i64, Option<i64>)> = self
            .statement(&self.sql.part)
            .bind(names(claims.iter()))
            .bind(owners(claims.iter()))
            .bind(waiters.client())
            .rows(&mut *conn)
            .await?;
        let mut answers = vec![Freed::default(); claims.len()];
        for (n, head) in gone {
            let at = usize::try_from(n - 1).unwrap_or(usize::MAX);
            if let (Some(claim), Some(answer)) = (claims.get(at), answers.get_mut(at)) {
                let next = self.behind_head(conn, claim.name(), head, waiters).await?;
                *answer = Freed::new(true, next);
            }
        }
        Ok(answers)
    }

    async fn reap(
        &self,
        conn: &mut PgConnection,
        names: &[LockName],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(String, Option<i64>)> =
            self.statement(&self.sql.reap).bind(asked).bind(waiters.client()).rows(&mut *conn).await?;
        self.behind_each(conn, heads, waiters).await
    }

    async fn deserted(&self, conn: &mut PgConnection, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let names: Vec<String> = self.statement(&self.sql.deserted).bind(micros(idle)).values(conn).await?;
        Ok(names.iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    async fn downgrade(&self, conn: &mut PgConnection, claim: &Claim) -> sqlx::Result<bool> {
        let done: Option<i64> = self
            .statement(&self.sql.downgrade)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(Mode::Shared.code())
            .value(&mut *conn)
            .await?;
        if done.is_some() {
            return Ok(true);
        }
        let member: Option<i64> = self
            .statement(&self.sql.member)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .value(conn)
            .await?;
        Ok(member.is_some())
    }

    async fn head(
        &self,
        conn: &mut PgConnection,
        name: &LockName,
        waiters: &Waiters,
    ) -> sqlx::Result<Option<i64>> {
        let head: Option<(String, Option<i64>)> = self
            .statement(&self.sql.call_next)
            .bind(vec![name.as_str()])
            .bind(waiters.client())
            .row(conn)
            .await?;
        Ok(head.and_then(|(_, head)| head).filter(|head| *head != ELSEWHERE))
    }

    async fn call(
        &self,
        conn: &mut PgConnection,
        name: &LockName,
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let told: Vec<Option<i64>> =
            self.statement(&self.sql.call).bind(name.as_str()).bind(waiters.client()).values(conn).await?;
        Ok(told.into_iter().flatten().filter(|seat| *seat != ELSEWHERE).collect())
    }
}
