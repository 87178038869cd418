// Works under a lock that `lockwell hold` keeps: go run hold.go NAME STEPS
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// NotObtained says that the lock was not free in time, or that the server could not be used.
type NotObtained struct {
	Message string
	Status  int
}

func (e *NotObtained) Error() string { return e.Message }

// Lost says that the lock is not held any more. Another may hold it.
type Lost struct{ Why string }

func (e *Lost) Error() string { return e.Why }

type told struct {
	Event   string `json:"event"`
	Token   uint64 `json:"token"`
	HoldID  string `json:"hold_id"`
	ValidMs int64  `json:"valid_ms"`
	Message string `json:"message"`
}

// Lock is held until it is released.
type Lock struct {
	Token  uint64
	HoldID string
	// Held is cancelled when the lock is lost. Its cause says why.
	Held    context.Context
	lose    context.CancelCauseFunc
	keeper  *exec.Cmd
	input   io.WriteCloser
	answers chan told
	ended   chan struct{}
}

// Hold waits for a lock.
func Hold(name string, options ...string) (*Lock, error) {
	args := append([]string{"hold", "--json"}, options...)
	keeper := exec.Command("lockwell", append(args, "--", name)...)
	keeper.Stderr = os.Stderr
	// In a process group of its own, so that Ctrl-C ends the work, and the work then ends the hold.
	keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := keeper.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := keeper.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	held, lose := context.WithCancelCause(context.Background())
	lock := &Lock{
		Held: held, lose: lose, keeper: keeper, input: input,
		answers: make(chan told, 1), ended: make(chan struct{}),
	}
	go lock.read(output)
	first, ok := <-lock.answers
	if !ok || first.Event != "granted" {
		status := lock.end()
		message := first.Message
		if !ok {
			message = context.Cause(held).Error()
		}
		return nil, &NotObtained{message, status}
	}
	lock.Token, lock.HoldID = first.Token, first.HoldID
	return lock, nil
}

// Check returns for how long the lock is held at least, from now. It is for one goroutine.
func (l *Lock) Check() (time.Duration, error) {
	asked := time.Now() // before the question: the answer may be late
	l.say("check")
	answer, ok := <-l.answers
	if !ok {
		return 0, context.Cause(l.Held)
	}
	// Since measures by the monotonic clock.
	return time.Duration(answer.ValidMs)*time.Millisecond - time.Since(asked), nil
}

// Release frees the lock. It is an error if it was not held until now.
func (l *Lock) Release() error {
	l.say("release")
	if l.end() != 0 {
		return context.Cause(l.Held)
	}
	return nil
}

// read reads all the time, in a goroutine of its own.
func (l *Lock) read(output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var line told
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			l.lose(&Lost{err.Error()})
			continue
		}
		switch line.Event {
		case "granted", "held", "refused":
			l.answers <- line
		case "lost":
			l.lose(&Lost{line.Message})
		}
	}
	// At the end of the output the lock is not held any more, whatever the last line was.
	l.lose(&Lost{"lockwell has ended"})
	close(l.answers)
	close(l.ended)
}

func (l *Lock) say(line string) {
	// If lockwell has ended, the reader says so.
	_, _ = io.WriteString(l.input, line+"\n")
}

func (l *Lock) end() int {
	_ = l.input.Close()
	// Wait closes the output, which must be read to its end before.
	<-l.ended
	if err := l.keeper.Wait(); err != nil && l.keeper.ProcessState == nil {
		return 70
	}
	return l.keeper.ProcessState.ExitCode()
}

func work(lock *Lock, steps int) error {
	fmt.Println("granted with token", lock.Token)
	for step := 1; step <= steps; step++ {
		left, err := lock.Check()
		if err != nil {
			return err
		}
		if left < 200*time.Millisecond {
			return &Lost{"the time that is left is too short for a step"}
		}
		// The work of a step, which ends when the lock is lost.
		select {
		case <-time.After(100 * time.Millisecond):
		case <-lock.Held.Done():
			return context.Cause(lock.Held)
		}
		fmt.Println("step", step, "of", steps)
	}
	return nil
}

func run(name string, steps int) (err error) {
	lock, err := Hold(name, "--wait", "5s")
	if err != nil {
		return err
	}
	defer func() {
		// An error of the work is more important than a loss after it.
		if released := lock.Release(); err == nil {
			err = released
		}
	}()
	return work(lock, steps)
}

func main() {
	steps, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = run(os.Args[1], steps)
	}
	var notObtained *NotObtained
	var lost *Lost
	switch {
	case errors.As(err, &notObtained):
		fmt.Println("not obtained:", err)
		os.Exit(notObtained.Status)
	case errors.As(err, &lost):
		fmt.Println("lost:", err)
		os.Exit(76)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(70)
	}
	fmt.Println("released")
}
