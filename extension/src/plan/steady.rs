//! Settings for the length of a call or of its transaction.

use pgrx::pg_sys;
use std::ffi::{CStr, CString};

/// Bounds how long the transaction may stand idle after a call that holds locks, unless the session has
/// a bound of its own. Before [`steady`], whose end would take it back.
pub fn bound_idle_time(lease_micros: i64) {
    const NAME: &CStr = c"idle_in_transaction_session_timeout";
    let millis = (lease_micros / 1000)
        .clamp(1, i64::from(i32::MAX))
        .to_string();
    let Ok(millis) = CString::new(millis) else {
        return;
    };
    // SAFETY: C strings that outlive the calls; the setting exists on every supported version, and a
    // local change ends with the transaction.
    unsafe {
        let present = pg_sys::GetConfigOption(NAME.as_ptr(), false, false);
        if !present.is_null() && CStr::from_ptr(present) == c"0" {
            set_option(NAME, &millis, pg_sys::GucAction::GUC_ACTION_LOCAL);
        }
    }
}

fn set_option(name: &CStr, value: &CStr, action: pg_sys::GucAction::Type) {
    // SAFETY: C strings that outlive the call, of settings that exist on every supported version.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            action,
            true,
            0,
            false,
        );
    }
}

/// The planner's hands, tied for the length of a call.
pub struct Steady {
    nest_level: i32,
}

const STEADY: [&CStr; 9] = [
    c"enable_seqscan",
    c"enable_bitmapscan",
    c"enable_hashjoin",
    c"enable_mergejoin",
    c"enable_material",
    c"enable_memoize",
    c"enable_sort",
    c"enable_incremental_sort",
    c"jit",
];

/// Ties the planner until the value is dropped; an error drops the settings with the transaction.
pub fn steady() -> Steady {
    // SAFETY: opens a nest level that drop, or the abort of the transaction, closes.
    let nest_level = unsafe { pg_sys::NewGUCNestLevel() };
    for name in STEADY {
        set_option(name, c"off", pg_sys::GucAction::GUC_ACTION_SAVE);
    }
    Steady { nest_level }
}

impl Drop for Steady {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: closes the level opened in steady(); nothing in between leaves one open.
            unsafe { pg_sys::AtEOXact_GUC(true, self.nest_level) };
        }
    }
}
