#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// PTX ISA text in, executed kernels out.
//
// parse() checks and decodes a whole module once; what it returns is immutable and may be run from any number of
// threads at the same time. run() executes one launch to its end on the calling thread (and on helpers it starts and
// joins itself, when RunOptions::threads allows). Device memory belongs to the caller: an address in a kernel is a host
// address, and Memory says which of them may be touched. Nothing here throws, and no kernel can touch a byte outside
// the ranges Memory names.
namespace tensor_fusion::sim::ptx {

struct ParseError {
  int line = 0;
  int column = 0;
  std::string message;

  // One line as ptxas writes it into a JIT log, with its newline and the closing "fatal" line.
  [[nodiscard]] std::string render() const;
};

enum class Isa : std::uint8_t { best, baseline, avx2, avx512 };

struct ParseOptions {
  int device_capability = 90;  // a `.target sm_X` above it is refused, as a driver refuses it
  Isa isa = Isa::best;         // host instructions to use; one the machine lacks falls back to what it has
};

struct Parameter {
  std::string name;
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t align = 1;
};

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;  // static; dynamic shared memory lies behind it
  std::size_t local_bytes = 0;   // per thread, all callees included
  std::optional<std::array<std::uint32_t, 3>> maxntid;
  std::optional<std::array<std::uint32_t, 3>> reqntid;
  int registers = 0;         // estimate: 32-bit registers live at once
  bool effect_free = false;  // no memory effect, no loop, cannot fail: a launch may be skipped
  bool uses_dynamic_shared = false;
  std::size_t index = 0;  // position in Module::kernels()
};

enum class GlobalSpace : std::uint8_t { global, constant };
enum class RelocationTarget : std::uint8_t { global, function };

struct Relocation {
  std::size_t offset = 0;  // where in the bytes
  std::size_t width = 8;   // bytes written there
  int shift = 0;           // the address is shifted right by so many bits first: a width of 1 stores one byte of it
  RelocationTarget target = RelocationTarget::global;
  std::size_t index = 0;  // global: position in Module::globals(); function: function number
  std::int64_t addend = 0;
};

struct Global {
  std::string name;
  GlobalSpace space = GlobalSpace::global;
  std::size_t size = 0;
  std::size_t align = 1;
  bool is_extern = false;          // declared only: the caller must supply the address of another module's
  bool visible = false;            // .visible, .weak or .common: found by name
  std::vector<std::byte> initial;  // may be shorter than size: the rest is zero
  std::vector<Relocation> relocations;
};

// The bits a function's address has in generic space.
[[nodiscard]] std::uint64_t function_address(std::size_t function_index);

class ModuleBody;  // decoded code, private to this room

class Module {
 public:
  explicit Module(std::unique_ptr<ModuleBody> body);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  [[nodiscard]] std::span<const Kernel> kernels() const;
  [[nodiscard]] std::span<const Global> globals() const;
  [[nodiscard]] const Kernel* find_kernel(std::string_view name) const;
  [[nodiscard]] const Global* find_global(std::string_view name) const;
  [[nodiscard]] int target() const;       // 75 for sm_75
  [[nodiscard]] int isa_version() const;  // 63 for .version 6.3

  // All `size` bytes a global starts with, references to other globals resolved; `addresses` is parallel to globals().
  [[nodiscard]] std::vector<std::byte> initial_bytes(std::size_t global,
                                                     std::span<const std::uint64_t> addresses) const;

  [[nodiscard]] const ModuleBody& body() const { return *body_; }

 private:
  std::unique_ptr<ModuleBody> body_;
};

[[nodiscard]] std::expected<std::shared_ptr<const Module>, ParseError> parse(std::string_view text,
                                                                             const ParseOptions& options = {});

// A loaded module: the caller has allocated each global, written initial_bytes() there, and says where.
struct Image {
  std::shared_ptr<const Module> module;
  std::vector<std::uint64_t> global_addresses;  // parallel to Module::globals()
};

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // one behind the last byte
  bool writable = true;
};

// Which host addresses a kernel may touch. range_of() is called seldom (answers are cached for one run) but from every
// thread of a run; what it answered must stay valid until run() returns.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::optional<Range> range_of(std::uint64_t address) = 0;
};

struct Launch {
  const Image* image = nullptr;
  const Kernel* kernel = nullptr;  // of image->module
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte> params;  // laid out by Kernel::parameters; missing bytes read as zero
  bool cooperative = false;           // all blocks make progress, so that they may wait for each other
};

struct RunOptions {
  const std::atomic<bool>* cancel = nullptr;    // polled; true ends the run with Status::cancelled
  std::uint64_t max_thread_instructions = 0;    // watchdog; 0 = none
  std::function<void(std::string_view)> print;  // text of printf and assert; called from any thread, one at a time
  // What a kernel tells the graph that it runs in, by cudaGraphSetConditional; from any of the run's cores.
  std::function<void(std::uint64_t handle, std::uint32_t value)> set_condition;
  std::function<void()> progress;       // called now and then while threads go on; from any of the run's cores
  int threads = 1;                      // cores this run may use
  std::uint32_t multiprocessors = 132;  // what %nsmid says
};

enum class Status : std::uint8_t {
  ok,
  illegal_address,
  misaligned_address,
  trap,
  assert_failed,
  illegal_instruction,
  timeout,  // watchdog, or a barrier nobody can leave
  cancelled,
  bad_launch  // sizes that cannot run; nothing was executed
};

[[nodiscard]] std::string_view status_name(Status status);

struct Outcome {
  Status status = Status::ok;
  std::uint64_t fault_address = 0;
  int line = 0;  // of the PTX text, where it failed
  std::uint64_t thread_instructions = 0;
  std::uint64_t warp_instructions = 0;
  std::uint64_t global_bytes = 0;  // read and written by threads, caches not considered
};

[[nodiscard]] Outcome run(const Launch& launch, Memory& memory, const RunOptions& options = {});

}  // namespace tensor_fusion::sim::ptx
