#pragma once

/// Waiting and receiving on a socket, interruptible by signals, for both ends.

#ifdef KVFENCE_HAS_ZMQ

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>
#include <zmq.hpp>

namespace kvfence::audit {

/// Frames of a multipart that are kept; further ones are dropped.
inline constexpr std::size_t kFramesMax = 8;

/// Whether something arrives before the time is over or a signal comes.
template <class Items>
bool wait(Items& items, std::chrono::milliseconds patience) {
  try {
    return zmq::poll(items, patience) > 0;
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    return false;
  }
}

/// False where none is waiting.
inline bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame) {
  for (;;) {
    try {
      return socket.recv(frame, zmq::recv_flags::dontwait).has_value();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

/// The frames of one multipart; false where none is waiting.
inline bool receive_frames(zmq::socket_t& socket, std::vector<zmq::message_t>& frames) {
  frames.clear();
  bool has_more = true;
  while (has_more) {
    zmq::message_t frame;
    if (!receive_frame(socket, frame)) return false;
    has_more = frame.more();
    if (frames.size() < kFramesMax) frames.push_back(std::move(frame));
  }
  return true;
}

}  // namespace kvfence::audit

#endif
