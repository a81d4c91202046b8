//! The steps of whoever stores and of whoever reads, in the order on which the trust of readers rests.
//!
//! They name no server. The extension takes them on the server's sequence and lock table; the test
//! `position_model` includes this very file and takes them in every order in which several sessions can.

/// What the steps are taken on. Each method is one step: between two of them anything may happen.
pub trait Ground {
    type Error;

    /// The last number drawn by anyone.
    fn last_number(&mut self) -> Result<i64, Self::Error>;
    /// The least number that anyone announces.
    fn least_announced(&mut self) -> Result<Option<i64>, Self::Error>;
    /// What this session announced last, whether it still holds or not.
    fn remembered(&self) -> Option<i64>;
    /// Whether this transaction still holds an announcement: a rolled-back savepoint may have dropped it.
    fn is_announced(&mut self, number: i64) -> Result<bool, Self::Error>;
    /// Announces to the end of the transaction, or of the subtransaction that is rolled back, and
    /// remembers it.
    fn announce(&mut self, number: i64) -> Result<(), Self::Error>;
    fn draw(&mut self, count: usize) -> Result<Vec<i64>, Self::Error>;
}

/// Draws numbers, announced before.
pub fn draw<G: Ground>(ground: &mut G, count: usize) -> Result<Vec<i64>, G::Error> {
    announce(ground)?;
    ground.draw(count)
}

/// Announces the last number that the transaction will not draw, unless an announcement of its own
/// still holds.
pub fn announce<G: Ground>(ground: &mut G) -> Result<(), G::Error> {
    if holds_announcement(ground)? {
        return Ok(());
    }
    let number = ground.last_number()?;
    ground.announce(number)
}

pub fn holds_announcement<G: Ground>(ground: &mut G) -> Result<bool, G::Error> {
    match ground.remembered() {
        Some(number) => ground.is_announced(number),
        None => Ok(false),
    }
}

/// Everything up to this number is visible to a snapshot taken from now on, or will never be. Whoever
/// drew such a number had announced a lower one before the last number was read, and had ended before
/// the announcements were: the other order, or an older snapshot, would miss it.
pub fn settled<G: Ground>(ground: &mut G) -> Result<i64, G::Error> {
    let last = ground.last_number()?;
    let announced = ground.least_announced()?;
    Ok(announced.map_or(last, |announced| announced.min(last)))
}

/// Reads what lies behind `after`, as far as it is settled; returns how far that is, too. `read` must
/// see everything that was committed before it began.
pub fn read<G: Ground, T>(
    ground: &mut G,
    after: i64,
    read: impl FnOnce(&mut G, i64) -> Result<T, G::Error>,
) -> Result<(i64, T), G::Error> {
    // It may come out lower than before, which is harmless to whoever never goes back.
    let stable = settled(ground)?.max(after);
    Ok((stable, read(ground, stable)?))
}
