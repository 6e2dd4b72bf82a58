#pragma once

/// SIGINT and SIGTERM, for a command that then reports what it has.

namespace kvfence {

/// From now on the first of these signals is remembered; the same one again ends the process.
void remember_interrupts();

/// The signal that came, or 0.
int interrupt();

}  // namespace kvfence
