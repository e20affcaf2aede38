#include "cli/program.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "cli/elf.h"
#include "cli/exit_code.h"

namespace tensor_fusion::cli {
namespace {

namespace fs = std::filesystem;

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "program-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, std::string_view content, mode_t mode = 0755) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }

  template <typename Header, typename Segment>
  static std::string elf_of(unsigned char elf_class, std::uint16_t machine, const std::string& interpreter) {
    Header header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = elf_class;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = machine;
    header.e_phoff = sizeof(header);
    header.e_phentsize = sizeof(Segment);
    header.e_phnum = 1;
    Segment segment{};
    segment.p_type = interpreter.empty() ? PT_LOAD : PT_INTERP;
    segment.p_offset = sizeof(header) + sizeof(segment);
    segment.p_filesz = static_cast<decltype(segment.p_filesz)>(interpreter.size() + 1);
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
           std::string(reinterpret_cast<const char*>(&segment), sizeof(segment)) + interpreter + '\0';
  }

  // A program with the given interpreter; "" for a static one.
  static std::string elf(const std::string& interpreter, unsigned char elf_class = ELFCLASS64,
                         std::uint16_t machine = kOwnMachine) {
    return elf_class == ELFCLASS64 ? elf_of<Elf64_Ehdr, Elf64_Phdr>(elf_class, machine, interpreter)
                                   : elf_of<Elf32_Ehdr, Elf32_Phdr>(elf_class, machine, interpreter);
  }

  static std::string own_loader() {
    std::ifstream self("/proc/self/exe", std::ios::binary);
    const ReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) {
      self.seekg(static_cast<std::streamoff>(offset));
      return bool(self.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size())));
    };
    return inspect_elf(fs::file_size("/proc/self/exe"), read)->interpreter.value();
  }

  ProgramRefusal refusal(const std::string& path,
                         const PreloadConditions& conditions = {.through_file = true, .search_path = "/usr/bin:/bin"}) {
    auto program = find_program(path, "");
    EXPECT_TRUE(program) << program.error().message;
    const auto checked = check_limitable(*program, conditions);
    EXPECT_FALSE(checked) << path;
    return checked ? ProgramRefusal{} : checked.error();
  }

  fs::path folder_;
};

TEST_F(ProgramTest, takes_a_dynamic_glibc_program) {
  auto program = find_program("sh", "/nowhere:/usr/bin:/bin");
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(check_limitable(*program, {.through_file = true}));
}

TEST_F(ProgramTest, refuses_static_musl_32_bit_and_foreign_binaries) {
  const std::pair<std::string, std::string> cases[] = {
      {elf(""), "statically linked"},
      {elf("/lib/ld-musl-x86_64.so.1"), "musl"},
      {elf(own_loader(), ELFCLASS32), "32-bit"},
      {elf(own_loader(), ELFCLASS64, EM_RISCV), "another processor"},
  };
  for (const auto& [content, says] : cases) {
    const auto refused = refusal(write("program", content));
    EXPECT_EQ(refused.exit_code, kExitCannotLimit);
    EXPECT_NE(refused.message.find(says), std::string::npos) << refused.message;
  }
}

// A copy or a download that broke off: it must not be called static.
TEST_F(ProgramTest, calls_a_program_that_was_cut_incomplete) {
  std::ifstream shell("/bin/sh", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(shell), {}};
  for (const std::size_t size :
       {std::size_t{5}, std::size_t{40}, std::size_t{100}, std::size_t{1000}, whole.size() / 2}) {
    const auto refused = refusal(write("cut", whole.substr(0, size)));
    EXPECT_EQ(refused.exit_code, kExitNotExecutable) << size;
    EXPECT_NE(refused.message.find("not a complete program file"), std::string::npos) << size << refused.message;
  }
}

TEST_F(ProgramTest, calls_an_object_file_no_program) {
  std::string object = elf("");
  object[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  const auto refused = refusal(write("object", object));
  EXPECT_EQ(refused.exit_code, kExitNotExecutable);
  EXPECT_NE(refused.message.find("is no program"), std::string::npos) << refused.message;
}

// Tools that change a program's interpreter put the new name at its end, far from the headers.
TEST_F(ProgramTest, finds_the_interpreter_wherever_it_lies_in_the_file) {
  std::string program = elf(own_loader());
  const std::uint64_t far = 300'000;
  std::memcpy(program.data() + sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_offset), &far, sizeof(far));
  program.resize(far, 'x');
  program += own_loader() + '\0';
  auto found = find_program(write("far", program), "");
  const auto checked = check_limitable(*found, {.through_file = true});
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST_F(ProgramTest, looks_through_scripts_to_what_runs_them) {
  const std::string tool = write("static-tool", elf(""));
  EXPECT_NE(refusal(write("script", "#!" + tool + " -x\n")).message.find("statically linked"), std::string::npos);
  const PreloadConditions with_path{.through_file = true, .search_path = folder_.string()};
  EXPECT_NE(
      refusal(write("by-env", "#!/usr/bin/env -S A=1 static-tool -u\n"), with_path).message.find("statically linked"),
      std::string::npos);
  auto script = find_program(write("fine", "#!/bin/sh\n"), "");
  EXPECT_TRUE(check_limitable(*script, {.through_file = true}));
  EXPECT_EQ(script->inspected.size(), 2u);
}

TEST_F(ProgramTest, refuses_a_glibc_older_than_the_limiter_needs) {
  const PreloadConditions demanding{.through_file = true, .limiter_needs_glibc = 999};
  const auto refused = refusal("/bin/sh", demanding);
  EXPECT_EQ(refused.exit_code, kExitCannotLimit);
  EXPECT_NE(refused.message.find("needs 2.999"), std::string::npos) << refused.message;
}

TEST_F(ProgramTest, looks_at_the_c_library_that_a_program_brings) {
  fs::create_directory(folder_ / "lib");
  const std::string loader = write("lib/ld-linux.so.2", "a loader");
  write("lib/libc.so.6", std::string("x\0GLIBC_2.2.5\0GLIBC_2.12\0", 25));
  const auto refused = refusal(write("old", elf(loader)), {.through_file = true, .limiter_needs_glibc = 17});
  EXPECT_EQ(refused.exit_code, kExitCannotLimit);
  EXPECT_NE(refused.message.find("runs on glibc 2.12, and the limiter needs 2.17"), std::string::npos)
      << refused.message;
  auto program = find_program(write("newer", elf(loader)), "");
  EXPECT_TRUE(check_limitable(*program, {.through_file = true, .limiter_needs_glibc = 12}));
}

TEST_F(ProgramTest, refuses_set_user_id_programs_only_where_the_environment_alone_loads_the_limiter) {
  const std::string path = write("suid", elf(own_loader()), 04755);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a program of another user";
  ASSERT_EQ(::chown(path.c_str(), 1, 1), 0);
  ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
  EXPECT_NE(refusal(path, {.through_file = false}).message.find("set-user-id"), std::string::npos);
  auto program = find_program(path, "");
  EXPECT_TRUE(check_limitable(*program, {.through_file = true}));
}

TEST_F(ProgramTest, tells_not_found_from_not_executable) {
  EXPECT_EQ(find_program("no-such-program", "/usr/bin").error().exit_code, kExitNoProgram);
  EXPECT_EQ(find_program((folder_ / "nothing").string(), "").error().exit_code, kExitNoProgram);
  EXPECT_EQ(find_program(folder_.string(), "").error().exit_code, kExitNotExecutable);
  EXPECT_EQ(find_program(write("data", "x", 0644), "").error().exit_code, kExitNotExecutable);
  EXPECT_EQ(refusal(write("text", "just text\n")).exit_code, kExitNotExecutable);
  EXPECT_EQ(refusal(write("lost", "#!/no/such/interpreter\n")).exit_code, kExitNotExecutable);
  EXPECT_EQ(refusal(write("loaderless", elf("/lib64/no-such-loader.so"))).exit_code, kExitNotExecutable);
}

TEST(Elf, of_any_bytes_is_read_within_them) {
  std::mt19937 random(7);
  std::vector<std::uint8_t> bytes(512);
  for (int round = 0; round < 20'000; ++round) {
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    std::memcpy(bytes.data(), ELFMAG, SELFMAG);
    bytes[EI_CLASS] = round % 2 == 0 ? ELFCLASS64 : ELFCLASS32;
    const auto facts = inspect_elf(std::span(bytes).first(random() % bytes.size()));
    EXPECT_LE(facts.value_or(ElfFacts{}).interpreter.value_or("").size(), bytes.size());
  }
}

TEST(Elf, tells_the_newest_glibc_that_is_named) {
  EXPECT_EQ(newest_glibc("GLIBC_2.2.5 GLIBC_2.17 GLIBC_2.4"), 17u);
  EXPECT_EQ(newest_glibc(std::string_view("x\0GLIBC_2.34\0GLIBC_2.5", 22)), 34u);
  EXPECT_EQ(newest_glibc("nothing"), 0u);
}

TEST_F(ProgramTest, is_not_waited_for_when_it_is_a_pipe) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0755), 0);
  const auto found = find_program(pipe, "");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().exit_code, kExitNotExecutable);
}

TEST_F(ProgramTest, is_not_called_unstarted_where_it_may_be_started_all_the_same) {
  Program program{write("static", elf("")), {}};
  const auto checked = check_limitable(program, {.through_file = true, .limiter_needs_glibc = 0, .search_path = ""});
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message.find("not started"), std::string::npos) << checked.error().message;
}

}  // namespace
}  // namespace tensor_fusion::cli
