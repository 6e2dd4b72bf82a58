#pragma once

/// The child's side of the protocol to outside implementations (outside_implementation.h): serves
/// any implementation of this process over a pipe. Also the template for one in another language.

#include <memory>
#include <string>
#include <string_view>

#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/target.h"

namespace kvfence {

/// The state of a child between lines.
class Server {
 public:
  /// Both have to outlive it.
  Server(const Target& target, Implementation& implementation)
      : target_(target), implementation_(implementation) {}

  /// Answers one line: appends a whole answer line to `out`, or nothing to a blank line. False ends
  /// the service.
  bool answer(std::string_view text, std::string& out);

  /// What the implementation says of the failure that ended the service.
  const std::string& failure() const { return failure_; }

 private:
  void answer_target(const Line& line, std::string& out);
  bool answer_config(const Line& line, std::string& out);
  void answer_observe(const Line& line, std::string& out);
  bool answer_command(const Line& line, std::string& out);

  const Target& target_;
  Implementation& implementation_;
  std::unique_ptr<World> world_;
  Observe observe_ = Observe::kState;
  Observation observation_;
  std::string failure_;
};

/// Serves an implementation over two file descriptors, until the end of input. All that has arrived
/// is answered before waiting for more.
///
/// Returns an exit status: 0 at the end of input; 1 if input or output fails, a line is longer than
///         limits::kLineBytesMax, or an answer ends the service (stderr says which).
int serve(const Target& target, Implementation& implementation, int input = 0, int output = 1);

}  // namespace kvfence
