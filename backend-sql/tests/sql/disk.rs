//! A disk whose power is cut: what is on it for sure, and what may be.

use crate::record::Op;

const SECTOR: usize = 512;

/// What the disk has for sure, and what it may have.
#[derive(Default)]
pub(crate) struct Disk<'a> {
    pub(crate) synced: [Vec<u8>; 2],
    pub(crate) pending: Vec<&'a Op>,
}

/// What becomes of a write that was not synced.
#[derive(Clone, Copy)]
pub(crate) enum WriteOutcome {
    There,
    Lost,
    /// These sectors of it are there.
    Torn(u64),
}

pub(crate) fn apply(file: &mut Vec<u8>, op: &Op, outcome: WriteOutcome) {
    let (at, cut) = (usize::try_from(op.offset).expect("small"), op.is_cut());
    match outcome {
        WriteOutcome::Lost => {}
        _ if cut => file.resize(at, 0),
        _ => {
            file.resize(file.len().max(at + op.data.len()), 0);
            for (n, byte) in op.data.iter().enumerate() {
                if !matches!(outcome, WriteOutcome::Torn(sectors) if sectors >> ((at + n) / SECTOR % 64) & 1 == 0)
                {
                    file[at + n] = *byte;
                }
            }
        }
    }
}

impl Disk<'_> {
    pub(crate) fn with(&self, outcomes: &[WriteOutcome]) -> [Vec<u8>; 2] {
        let mut files = self.synced.clone();
        for (op, outcome) in self.pending.iter().zip(outcomes) {
            apply(&mut files[op.file], op, *outcome);
        }
        files
    }

    /// The ways in which a cut may end, for this many pending writes: all of them for a few, and a choice for
    /// many, with a change of one write at `steps` places.
    pub(crate) fn endings(&self, steps: usize) -> Vec<Vec<WriteOutcome>> {
        let count = self.pending.len();
        let mut endings = vec![vec![WriteOutcome::Lost; count], vec![WriteOutcome::There; count]];
        if count <= 4 {
            for chosen in 1..(1_u32 << count) {
                let outcome = |n| if chosen >> n & 1 == 1 { WriteOutcome::There } else { WriteOutcome::Lost };
                endings.push((0..count).map(outcome).collect());
            }
        }
        for n in (0..count).rev().step_by(count.div_ceil(steps).max(1)) {
            for outcome in [
                WriteOutcome::Lost,
                WriteOutcome::Torn(0x5555_5555_5555_5555),
                WriteOutcome::Torn(0x0f0f_0f0f_0f0f_0f0f),
            ] {
                let mut ending = vec![WriteOutcome::There; count];
                ending[n] = outcome;
                endings.push(ending);
            }
        }
        // Always the same numbers, so that a failure can be repeated.
        let mut state = count as u64 + 1;
        for _ in 0..6 {
            let mut ending = Vec::new();
            for _ in 0..count {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ending.push(match state >> 33 & 3 {
                    0 => WriteOutcome::Lost,
                    1 => WriteOutcome::Torn(state ^ state << 31),
                    _ => WriteOutcome::There,
                });
            }
            endings.push(ending);
        }
        endings
    }
}
