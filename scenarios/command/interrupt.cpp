#include "scenarios/command/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace kvfence {
namespace {

volatile std::sig_atomic_t signal_that_came = 0;

}  // namespace

void remember_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { signal_that_came = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

int interrupt() { return signal_that_came; }

}  // namespace kvfence
