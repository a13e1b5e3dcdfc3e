"""Chromium without a window, driven by its own protocol through two pipes: no package is needed."""
import base64
import contextlib
import json
import os
import shutil
import subprocess
import time

CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')


class Browser:
    """One tab. `errors` collects what its console says is wrong."""
    def __init__(self, read, write):
        self.read = read        # files that hold messages, each ended by a zero byte
        self.write = write
        self.asked = 0
        self.session = None
        self.errors = []

    def ask(self, method, **arguments):
        """Send a command and return its answer."""
        self.asked += 1
        message = {'id': self.asked, 'method': method, 'params': arguments}
        if self.session:
            message['sessionId'] = self.session
        self.write.write(json.dumps(message).encode() + b'\0')
        self.write.flush()
        while True:
            answer = self.next_message()
            if answer.get('id') == self.asked:
                assert 'error' not in answer, answer
                return answer['result']
            if answer.get('method') == 'Runtime.exceptionThrown':
                self.errors.append(answer['params'])
            if answer.get('method') == 'Log.entryAdded' and answer['params']['entry']['level'] == 'error':
                self.errors.append(answer['params'])

    def next_message(self):
        message = bytearray()
        while not message.endswith(b'\0'):
            byte = self.read.read(1)
            assert byte, 'the browser has ended'
            message += byte
        return json.loads(message[:-1])

    def open(self, path):
        target = self.ask('Target.createTarget', url='about:blank')
        attached = self.ask('Target.attachToTarget', targetId=target['targetId'], flatten=True)
        self.session = attached['sessionId']
        for domain in ('Runtime', 'Log', 'Page'):
            self.ask(f'{domain}.enable')
        self.ask('Page.navigate', url=path.resolve().as_uri())

    def value(self, script):
        """Return what an expression of JavaScript is, awaited where it is a promise."""
        answer = self.ask('Runtime.evaluate', expression=script, returnByValue=True, awaitPromise=True)
        assert 'exceptionDetails' not in answer, answer
        return answer['result'].get('value')

    def wait_for(self, script, seconds=60):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(f'Boolean({script})'):
            assert time.monotonic() < end, f'{script} has not become true in {seconds} s'
            time.sleep(0.05)

    def point(self, selector):
        """Move the mouse to the middle of an element. Returns where that is."""
        place = self.value(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: 'center'}});
            const box = element.getBoundingClientRect();
            return {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
        }})()""")
        self.ask('Input.dispatchMouseEvent', type='mouseMoved', **place)
        return place

    def click(self, selector):
        place = self.point(selector)
        for event in ('mousePressed', 'mouseReleased'):
            self.ask('Input.dispatchMouseEvent', type=event, button='left', clickCount=1, **place)

    def press(self, key, code):
        for event in ('rawKeyDown', 'keyUp'):
            self.ask('Input.dispatchKeyEvent', type=event, key=key, code=key, windowsVirtualKeyCode=code)

    def resize(self, width, height):
        self.ask('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1,
                 mobile=width < 500)

    def picture(self, path):
        """Write the whole page as a picture."""
        answer = self.ask('Page.captureScreenshot', format='png', captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer['data']))


@contextlib.contextmanager
def browser(folder):
    """A Browser whose profile is in a folder."""
    commands, write = os.pipe()
    read, answers = os.pipe()
    script = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'   # the descriptors that it reads and writes
    options = ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
               '--hide-scrollbars', f'--user-data-dir={folder}/profile']
    process = subprocess.Popen(['bash', '-c', script, CHROMIUM, *options], pass_fds=(commands, answers),
                               stderr=subprocess.DEVNULL)
    os.close(commands)
    os.close(answers)
    try:
        with open(read, 'rb') as reads, open(write, 'wb') as writes:
            tab = Browser(reads, writes)
            yield tab
            tab.session = None
            tab.ask('Browser.close')
        process.wait(20)
    finally:
        process.kill()
