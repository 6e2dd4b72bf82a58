// Two threads and one variable without a lock: the thread sanitizer must report it.

#include <cstdio>
#include <thread>

int main() {
  int num_seen = 0;
  std::thread other([&num_seen] { ++num_seen; });
  ++num_seen;
  other.join();
  std::printf("%d\n", num_seen);
  return 0;
}
