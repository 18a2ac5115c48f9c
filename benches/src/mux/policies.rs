//! Selection of policies by name.

use command_line::names;
use gpu_mux::Policy;

use crate::command::bad_input;

/// Returns the policies of the given names, in their order, or all policies if none is named. Each
/// has the name as typed.
///
/// # Errors
/// Bad input, with the known names, if a name is unknown.
pub(crate) fn named(typed: &[String]) -> anyhow::Result<Vec<(String, Policy)>> {
    let all = Policy::all();
    if typed.is_empty() {
        return Ok(all.into_iter().map(|(name, policy)| (name.to_owned(), policy)).collect());
    }
    let known = || all.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let meant = names::find(name, all.iter().map(|(known, _)| *known)).unwrap_or(name);
        let policy = Policy::named(meant).map(|policy| (name.clone(), policy));
        policy.ok_or_else(|| bad_input(format!("no policy {name:?}: there are {}", known())))
    };
    typed.iter().map(find).collect()
}
